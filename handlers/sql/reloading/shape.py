"""Whether both tables look the same, and what else a delete of the old rows would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from handlers.sql.naming import exact_table
from handlers.sql.target.known_tables import KnownTable, TableName

__all__ = ["changed_by_deletes", "columns_of"]

_PG_REFERRERS = """
SELECT DISTINCT conrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND confrelid = to_regclass(:name) AND conrelid <> confrelid
AND confdeltype IN ('c', 'n', 'd') ORDER BY 1
"""
_MYSQL_REFERRERS = """
SELECT DISTINCT concat(constraint_schema, '.', table_name) FROM information_schema.referential_constraints
WHERE unique_constraint_schema = :schema AND referenced_table_name = :table
AND delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT')
AND NOT (constraint_schema = :schema AND table_name = :table) ORDER BY 1
"""


def columns_of(connection: sa.Connection, table: KnownTable) -> dict[str, str]:
    return {one.name: _type(one.sql_type, connection) for one in table.columns.values()}


def _type(type_: sa.types.TypeEngine[Any], connection: sa.Connection) -> str:
    return "?" if isinstance(type_, sa.types.NullType) else type_.compile(connection.dialect)


def changed_by_deletes(connection: sa.Connection, table: TableName) -> Sequence[str]:
    """Other tables whose foreign keys do something to their rows when rows of this one are deleted. (SQLite's
    foreign keys are off.)"""
    schema, name = table
    match connection.dialect.name:
        case "postgresql":
            shown = connection.dialect.identifier_preparer.format_table(exact_table(schema, name))
            found = connection.scalars(sa.text(_PG_REFERRERS), {"name": shown.replace("%%", "%")})
        case "mysql" | "mariadb":
            of = {"schema": schema or connection.dialect.default_schema_name, "table": name}
            found = connection.scalars(sa.text(_MYSQL_REFERRERS), of)
        case _:
            return ()
    return found.all()
