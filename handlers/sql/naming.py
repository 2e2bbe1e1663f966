"""Which target table holds a source table: two templates."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter

__all__ = ["DEFAULT_TEMPLATES", "Naming", "check_template"]

DEFAULT_TEMPLATES = {
    "postgresql": ("{database}", "{table}"),
    "mysql": ("{database}", "{table}"),
    "mariadb": ("{database}", "{table}"),
    # SQLite has no schemas. A dot, as in the full name: `_` would make one name of a_b.c and a.b_c.
    "sqlite": (None, "{database}.{table}"),
}
"""Dialect -> templates of schema and table. MySQL's databases are SQLAlchemy's schemas."""

_FIELDS = ("database", "table")


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
