"""Which target table holds a source table: two templates."""

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
    # SQLite has no schemas. A dot, as in the full name: `_` would make one name of a_b.c and a.b_c.
    "sqlite": (None, "{database}.{table}"),
}
"""Dialect -> templates of schema and table. MySQL's databases are SQLAlchemy's schemas."""

_FIELDS = ("database", "table")

_PG_NAME_BYTES = 63
_MYSQL_NAME_CHARACTERS = 64


class NameUnfit(ValueError):
    """A name that the target does not take or would cut, or that cannot be read back from it."""


def check_name(name: str, dialect: str) -> None:
    """Raises NameUnfit."""
    is_mysql = dialect in ("mysql", "mariadb")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise NameUnfit(f"no database takes the name {name!r}: {error.reason}") from error
    if not name or "\0" in name:
        raise NameUnfit(f"no database takes the name {name!r}")
    if dialect == "postgresql" and size > _PG_NAME_BYTES:
        raise NameUnfit(f"PostgreSQL takes no name of more than {_PG_NAME_BYTES} bytes: {name}")
    if is_mysql and (len(name) > _MYSQL_NAME_CHARACTERS or name.endswith(" ")):
        raise NameUnfit(
            f"MySQL takes no name of more than {_MYSQL_NAME_CHARACTERS} characters or with a space at its "
            f"end: {name!r}"
        )
    if is_mysql and max(name) > "\uffff":
        raise NameUnfit(f"in MySQL and MariaDB no name may have characters beyond U+FFFF (emoji): {name}")
    if is_mysql and "\n" in name:
        # SQLAlchemy reads SHOW CREATE TABLE line by line.
        raise NameUnfit(f"in MySQL and MariaDB no name may have a line break: {name!r}")


def check_names(names: Iterable[str | None], dialect: str) -> None:
    """Raises NameUnfit. None: no name."""
    for name in names:
        if name is not None:
            check_name(name, dialect)


def exact(name: str) -> sa.quoted_name:
    """The name, which SQLAlchemy quotes then. Left alone it would not quote one that only ends in a line
    break."""
    return sa.quoted_name(name, quote=True)


def exact_table(schema: str | None, name: str, *columns: sa.ColumnClause[Any]) -> sa.TableClause:
    """To be spelled in a statement."""
    return sa.table(exact(name), *columns, schema=None if schema is None else exact(schema))


@dataclass(frozen=True, slots=True)
class Naming:
    """Names tables of the target. `schema` is None where the connection's own schema is meant."""

    schema: str | None
    table: str

    @classmethod
    def of(cls, dialect: str, schema: str | None = None, table: str | None = None) -> Naming:
        """The templates that are set, else the dialect's own."""
        own_schema, own_table = DEFAULT_TEMPLATES[dialect]
        return cls(schema or own_schema, table or own_table)

    def target(self, database: str, table: str) -> tuple[str | None, str]:
        """(schema or None, table) of the target, not quoted.

        >>> Naming("{database}", "{table}").target("shop", "orders")
        ('shop', 'orders')
        >>> Naming.of("sqlite").target("shop", "orders")
        (None, 'shop.orders')
        """
        fields = {"database": database, "table": table}
        schema = None if self.schema is None else self.schema.format_map(fields)
        return schema, self.table.format_map(fields)

    def asked(self, database: str, table: str) -> tuple[str | None, str | None]:
        """(database, table) as far as the templates ask for them.

        >>> Naming("all", "{table}").asked("shop", "orders")
        (None, 'orders')
        """
        used = {field for _, field, _, _ in Formatter().parse((self.schema or "") + self.table)}
        return database if "database" in used else None, table if "table" in used else None


def check_template(template: str) -> str:
    """The template itself. Raises ValueError for one that `Naming` cannot fill."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is no template: {error}") from None
    for _, field, form, conversion in parts:
        if field is not None and (field not in _FIELDS or form or conversion):
            raise ValueError(f"{{{field}}} is unknown in a name; allowed: {{database}}, {{table}}")
    return template
