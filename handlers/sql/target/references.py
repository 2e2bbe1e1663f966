"""Foreign keys that change other rows if a row is deleted or its key changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from handlers.sql.naming import exact_table
from handlers.sql.target.known_tables import TableName

_POSTGRESQL = sa.text("""
SELECT DISTINCT conrelid::regclass::text, conrelid = confrelid, confdeltype IN ('c', 'n', 'd')
FROM pg_constraint WHERE contype = 'f' AND confrelid = to_regclass(:name)
AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd')) ORDER BY 1
""")
_MYSQL = sa.text("""
SELECT DISTINCT concat(constraint_schema, '.', table_name),
constraint_schema = :schema AND table_name = :table, delete_rule NOT IN ('RESTRICT', 'NO ACTION')
FROM information_schema.referential_constraints
WHERE unique_constraint_schema = :schema AND referenced_table_name = :table
AND NOT (delete_rule IN ('RESTRICT', 'NO ACTION') AND update_rule IN ('RESTRICT', 'NO ACTION')) ORDER BY 1
""")


class Reference(NamedTuple):
    table: str
    """Its readable name."""
    is_own: bool
    """Whether the table refers to itself."""
    heeds_deletes: bool
    """Whether a delete changes its rows. If not, only a changed key does."""


def references_to(connection: sa.Connection, table: TableName) -> Sequence[Reference]:
    """Return those that change rows. SQLite's foreign keys are off, and DuckDB's change no rows."""
    schema, name = table
    match connection.dialect.name:
        case "postgresql":
            shown = connection.dialect.identifier_preparer.format_table(exact_table(schema, name))
            found = connection.execute(_POSTGRESQL, {"name": shown.replace("%%", "%")})
        case "mysql" | "mariadb":
            of = {"schema": schema or connection.dialect.default_schema_name, "table": name}
            found = connection.execute(_MYSQL, of)
        case _:
            return ()
    return [Reference(shown, bool(is_own), bool(heeds)) for shown, is_own, heeds in found]
