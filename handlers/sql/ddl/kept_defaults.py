"""Change a column's type in MySQL, MariaDB or PostgreSQL without losing its default.

MODIFY in MySQL and MariaDB drops a default that its definition does not repeat."""

from __future__ import annotations

import sqlalchemy as sa

from handlers.logs import get_logger
from handlers.sql.ddl.target import Target, TargetTable

log = get_logger("handlers.sql")

# https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
_NO_SUCH_DEFAULT = (1067, 1101, 1294)
"""Invalid default; texts and blobs allow no default; invalid ON UPDATE."""


def modify_in_mysql(target: Target, table: TargetTable, column: str, definition: str) -> None:
    """Change the column's definition. Keep its default if the new type accepts it."""
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
    """Return the default in SQL syntax; empty if the column has no default."""
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
        return "" if default == "NULL" else default  # in SQL syntax already
    if "DEFAULT_GENERATED" in extra:
        return default if default.startswith("CURRENT_TIMESTAMP") else f"({default})"
    return default if default.startswith("b'") else target.literal(default, sa.String())


_DEFAULT = sa.text(
    "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d "
    "JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum "
    "WHERE d.adrelid = CAST(:table AS regclass) AND a.attname = :column AND a.attgenerated = ''"
)


def retype_in_postgresql(target: Target, table: TargetTable, column: str, clause: str, type_: str) -> None:
    """Change the type with `clause` (after ALTER COLUMN) and keep the default if it can be cast to `type_`.
    PostgreSQL itself keeps defaults only if an implicit or assignment cast exists."""
    own = f"ALTER COLUMN {target.quote(column)}"
    found = {"table": target.ref(table), "column": column}
    default = target.connection.scalar(_DEFAULT, found)
    if default is None:
        target.alter(table, f"{own} {clause}")
        return
    target.alter(table, f"{own} DROP DEFAULT", f"{own} {clause}")
    try:
        with target.connection.begin_nested():
            # Cast it once now. Otherwise it would fail only at each insert.
            target.run(f"SELECT CAST(({default}) AS {type_})", is_change=False)
            target.alter(table, f"{own} SET DEFAULT CAST(({default}) AS {type_})")
    except sa.exc.DBAPIError:
        log.warning("ddl_default_not_kept", table=table.name, column=column, default=default)
