"""Map source tables to target tables with two templates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from string import Formatter
from typing import Any

import sqlalchemy as sa

DEFAULT_TEMPLATES = {
    "postgresql": ("{database}", "{table}"),
    "mysql": ("{database}", "{table}"),
    "mariadb": ("{database}", "{table}"),
    "duckdb": ("{database}", "{table}"),
    # SQLite has no schemas. With `_` instead of the dot, a_b.c and a.b_c would have the same name.
    "sqlite": (None, "{database}.{table}"),
}
"""Dialect -> templates of schema and table. SQLAlchemy calls MySQL's databases schemas."""

_FIELDS = ("database", "table")

_PG_NAME_BYTES = 63
_MYSQL_NAME_CHARACTERS = 64


class NameUnfit(ValueError):
    """A name that the target refuses, cuts or does not return unchanged."""


def check_name(name: str, dialect: str) -> None:
    """Check one name. Raises NameUnfit."""
    is_mysql = dialect in ("mysql", "mariadb")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise NameUnfit(f"no database accepts the name {name!r}: {error.reason}") from error
    if not name or "\0" in name:
        raise NameUnfit(f"no database accepts the name {name!r}")
    if dialect == "postgresql" and size > _PG_NAME_BYTES:
        raise NameUnfit(f"PostgreSQL accepts names of at most {_PG_NAME_BYTES} bytes, not {name}")
    if is_mysql and (len(name) > _MYSQL_NAME_CHARACTERS or name.endswith(" ")):
        raise NameUnfit(
            f"MySQL accepts names of at most {_MYSQL_NAME_CHARACTERS} characters without a space at the end, "
            f"not {name!r}"
        )
    if is_mysql and max(name) > "\uffff":
        raise NameUnfit(f"in MySQL and MariaDB no name may have characters beyond U+FFFF (emoji): {name}")
    if is_mysql and "\n" in name:
        # SQLAlchemy reads SHOW CREATE TABLE line by line.
        raise NameUnfit(f"in MySQL and MariaDB no name may have a line break: {name!r}")


def check_names(names: Iterable[str | None], dialect: str) -> None:
    """Check the names and ignore None. Raises NameUnfit."""
    for name in names:
        if name is not None:
            check_name(name, dialect)


def exact(name: str) -> sa.quoted_name:
    """Return the name so that SQLAlchemy always quotes it. By itself it does not quote a plain name that ends
    in a line break."""
    return sa.quoted_name(name, quote=True)


def exact_table(schema: str | None, name: str, *columns: sa.ColumnClause[Any]) -> sa.TableClause:
    """Return the table for use in statements, with quoted names."""
    return sa.table(exact(name), *columns, schema=None if schema is None else exact(schema))


@dataclass(frozen=True, slots=True)
class Naming:
    """Names the target's tables. If `schema` is None, the connection's own schema is used."""

    schema: str | None
    table: str

    @classmethod
    def of(cls, dialect: str, schema: str | None = None, table: str | None = None) -> Naming:
        """Return the given templates, or the dialect's defaults for those that are None."""
        own_schema, own_table = DEFAULT_TEMPLATES[dialect]
        return cls(schema or own_schema, table or own_table)

    def target(self, database: str, table: str) -> tuple[str | None, str]:
        """Return (schema or None, table) of the target, not quoted.

        >>> Naming("{database}", "{table}").target("shop", "orders")
        ('shop', 'orders')
        >>> Naming.of("sqlite").target("shop", "orders")
        (None, 'shop.orders')
        """
        fields = {"database": database, "table": table}
        schema = None if self.schema is None else self.schema.format_map(fields)
        return schema, self.table.format_map(fields)

    def asked(self, database: str, table: str) -> tuple[str | None, str | None]:
        """Return (database, table), with None for a part that the templates do not use.

        >>> Naming("all", "{table}").asked("shop", "orders")
        (None, 'orders')
        """
        used = {field for _, field, _, _ in Formatter().parse((self.schema or "") + self.table)}
        return database if "database" in used else None, table if "table" in used else None


def check_template(template: str) -> str:
    """Return the template. Raises ValueError if `Naming` cannot fill it."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is not a template: {error}") from None
    for _, field, form, conversion in parts:
        if field is not None and (field not in _FIELDS or form or conversion):
            raise ValueError(f"{{{field}}} is unknown in a name; allowed: {{database}}, {{table}}")
    return template
