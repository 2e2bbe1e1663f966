"""A column of MySQL, MariaDB or PostgreSQL gets another type, and keeps its default.

MODIFY in MySQL and MariaDB drops what its definition does not name."""

from __future__ import annotations

import sqlalchemy as sa

from handlers.logs import get_logger
from handlers.sql.ddl.target import Target, TargetTable

log = get_logger("handlers.sql")

# https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
_NO_SUCH_DEFAULT = (1067, 1101, 1294)
"""Invalid default value; a text or a blob has none; invalid ON UPDATE."""


def modify_in_mysql(target: Target, table: TargetTable, column: str, definition: str) -> None:
    """Give the column another definition, and leave it its default, if its new type takes it."""
    modify = f"MODIFY {target.quote(column)} {definition}"
    default = _default_in_mysql(target, table, column)
    if default:
        try:
            target.alter(table, f"{modify} DEFAULT {default}")
        except sa.exc.DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] not in _NO_SUCH_DEFAULT:
                raise
            target.done.pop()
            log.warning("ddl_default_not_kept", table=table.name, column=column, default=default)
        else:
            return
    target.alter(table, modify)


def _default_in_mysql(target: Target, table: TargetTable, column: str) -> str:
    """As a statement spells it; empty: none."""
    found = target.connection.execute(
        sa.text(
            "SELECT column_default, extra FROM information_schema.columns WHERE table_name = :name "
            "AND table_schema = coalesce(:schema, database()) AND column_name = :column"
        ),
        {"name": table.name, "schema": table.schema, "column": column},
    ).first()
    if found is None or found[0] is None:
        return ""
    default, extra = str(found[0]), str(found[1])
    if getattr(target.connection.dialect, "is_mariadb", False):
        return "" if default == "NULL" else default  # it is spelled already
    if "DEFAULT_GENERATED" in extra:
        return default if default.startswith("CURRENT_TIMESTAMP") else f"({default})"
    return default if default.startswith("b'") else target.literal(default, sa.String())


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
