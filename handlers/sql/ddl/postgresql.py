"""A column of PostgreSQL that has a default gets another type."""

from __future__ import annotations

import sqlalchemy as sa

from handlers.logs import get_logger
from handlers.sql.ddl.target import Target, TargetTable

log = get_logger("handlers.sql")

_DEFAULT = sa.text(
    "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d "
    "JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum "
    "WHERE d.adrelid = CAST(:table AS regclass) AND a.attname = :column AND a.attgenerated = ''"
)


def retype_in_postgresql(target: Target, table: TargetTable, column: str, clause: str, type_: str) -> None:
    """`clause`: as it follows ALTER COLUMN; `type_`: the new type. The default stays, if it can be cast: that
    PostgreSQL does by itself only where it needs no cast that is asked for."""
    own = f"ALTER COLUMN {target.quote(column)}"
    found = {"table": target.ref(table), "column": column}
    default = target.connection.scalar(_DEFAULT, found)
    if default is None:
        target.alter(table, f"{own} {clause}")
        return
    target.alter(table, f"{own} DROP DEFAULT", f"{own} {clause}")
    try:
        with target.connection.begin_nested():
            # Cast once now: as a default it would fail with each insert only.
            target.run(f"SELECT CAST(({default}) AS {type_})", is_change=False)
            target.alter(table, f"{own} SET DEFAULT CAST(({default}) AS {type_})")
    except sa.exc.DBAPIError:
        log.warning("ddl_default_not_kept", table=table.name, column=column, default=default)
