"""Create, drop, truncate and rename tables."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from handlers.api import Change, Rejected
from handlers.logs import get_logger
from handlers.mysql.ddl import CreateTable
from handlers.sql.ddl.rebuilding import create_like, rebuild
from handlers.sql.ddl.target import Target, TargetTable
from handlers.sql.naming import NameUnfit
from handlers.sql.target.creating import ColumnsMissing, TableMissing, create, make_schema

log = get_logger("handlers.sql")


def create_table(target: Target, table: TargetTable, operation: CreateTable) -> None:
    """Create the table. Columns outside the key are nullable for zero dates and missing values."""
    if target.exists(table):
        missing = {column.name for column in operation.columns} - set(target.columns(table))
        if missing:
            log.info("ddl_table_is_there_with_other_columns", table=table.name, lacks=sorted(missing))
        return
    making = partial(target.kept.making, operation.table, target.naming)
    if operation.like is not None:
        source = target.table(operation.like)
        if target.exists(source):  # otherwise its first row creates the table
            make_schema(target.connection, table.schema)
            with making():
                _create_like(target, table, source)
        return
    columns = {column.name: column.type for column in operation.columns}
    try:
        create(target.connection, TableMissing(table, columns, operation.key), making)
    except NameUnfit as error:
        raise Rejected(str(error)) from error
    target.done.append(f"CREATE TABLE {target.ref(table)}")


def _create_like(target: Target, table: TargetTable, source: TargetTable) -> None:
    if target.family == "postgresql":
        target.run(f"CREATE TABLE {target.ref(table)} (LIKE {target.ref(source)} INCLUDING ALL)")
    elif target.family == "mysql":
        target.run(f"CREATE TABLE {target.ref(table)} LIKE {target.ref(source)}")
    else:
        create_like(target, table, source)


def drop_table(target: Target, table: TargetTable) -> None:
    if target.exists(table):
        target.run(f"DROP TABLE {target.ref(table)}")


def truncate_table(target: Target, table: TargetTable, change: Change) -> None:
    """Delete all rows, or set the values of the change's `after` in each (see `Change`)."""
    if not target.exists(table):
        return
    for name, value in (change.after or {}).items():
        _mark_all(target, table, name, value, (change.types or {})[name])
    if not change.after:
        # SQLite has no TRUNCATE. DuckDB's TRUNCATE equals DELETE.
        verb = "DELETE FROM" if target.is_file else "TRUNCATE TABLE"
        target.run(f"{verb} {target.ref(table)}")


def _mark_all(target: Target, table: TargetTable, name: str, value: object, source_type: str) -> None:
    """Set a column in the rows in which it is NULL. Create it if it does not exist."""
    if target.column(table, name) is None:
        create(target.connection, ColumnsMissing(table, {name: source_type}), nullcontext)
    name = target.column(table, name) or name
    column, type_ = target.quote(name), target.columns(table)[name]
    target.set_all(table, column, value, type_, f" WHERE {column} IS NULL")


def rename_table(target: Target, table: TargetTable, new: TargetTable) -> bool:
    """Rename the table. Return False if it has the name already, does not exist, or `new` exists."""
    if table == new or not target.exists(table):
        return False
    if target.exists(new):
        # The statement is repeated, or the target had that table already.
        log.warning("ddl_table_not_renamed", table=target.ref(table), to=target.ref(new), because="it exists")
        return False
    make_schema(target.connection, new.schema)
    if target.family == "mysql":
        target.run(f"RENAME TABLE {target.ref(table)} TO {target.ref(new)}")
        return True
    if table.schema != new.schema and target.family == "duckdb":
        rebuild(target, table, to=new)
        return True
    if table.schema != new.schema:
        schema = new.schema or target.connection.dialect.default_schema_name or ""
        target.alter(table, f"SET SCHEMA {target.quote(schema)}")
        table = table._replace(schema=new.schema)
    if table.name != new.name:
        target.alter(table, f"RENAME TO {target.quote(new.name)}")
    return True
