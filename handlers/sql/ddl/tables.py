"""Create, drop, truncate and rename tables, change primary keys, and number rows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from hashlib import sha256
from uuid import uuid4

import sqlalchemy as sa

from handlers.api import Change, Rejected
from handlers.logs import get_logger
from handlers.mysql.ddl import CreateTable
from handlers.sql.ddl.rebuilding import create_like, rebuild
from handlers.sql.ddl.target import KEY_INDEX, Target, TargetTable
from handlers.sql.naming import NameUnfit
from handlers.sql.target.creating import ColumnsMissing, TableMissing, create, make_schema
from handlers.sql.target.known_tables import row_id
from handlers.sql.types.mysql_sizes import fitting_types, key_type

log = get_logger("handlers.sql")


def change_key(target: Target, table: TargetTable, columns: Iterable[str]) -> None:
    """Set the table's primary key. Drop it if `columns` is empty."""
    found = [(name, target.column(table, name)) for name in columns]
    if any(name is None for _, name in found):
        lacks = [name for name, own in found if own is None]
        log.warning("ddl_key_not_changed", table=table.name, because=f"it has no column {lacks}")
        return
    key = tuple(own for _, own in found if own is not None)
    old = target.key(table)
    if key == old:
        return
    nulls = " OR ".join(f"{target.quote(name)} IS NULL" for name in key)
    lacking = bool(key) and target.any_row(table, nulls)
    if target.is_file:
        rebuild(target, table, key=() if lacking else key)
    else:
        _replace_key(target, table, old, () if lacking else key)
    if lacking:
        # A unique index still finds rows. Rows whose key no record ever contains stay.
        log.warning("ddl_key_is_unique_only", table=table.name, columns=key, because="rows lack its values")
        # PostgreSQL's index names are unique in a schema.
        index = f"{sha256(table.name.encode()).hexdigest()[:40]}{KEY_INDEX}"
        there = sa.inspect(target.connection).get_indexes(table.name, table.schema)
        if not any((one["name"] or "").endswith(KEY_INDEX) for one in there):
            listed = ", ".join(target.quote(name) for name in key)
            target.run(f"CREATE UNIQUE INDEX {target.quote(index)} ON {target.ref(table)} ({listed})")


def _replace_key(target: Target, table: TargetTable, old: tuple[str, ...], key: tuple[str, ...]) -> None:
    is_postgresql = target.family == "postgresql"
    if not is_postgresql and key:
        _make_indexable(target, table, key)
    clauses = []
    if old and is_postgresql:
        clauses.append(f"DROP CONSTRAINT {target.quote(target.key_name(table))}")
        clauses += [f"ALTER COLUMN {target.quote(name)} DROP NOT NULL" for name in old if name not in key]
    elif old:
        clauses.append("DROP PRIMARY KEY")
    if key:
        clauses.append(f"ADD PRIMARY KEY ({', '.join(target.quote(name) for name in key)})")
    if clauses:
        target.alter(table, *clauses)


def _make_indexable(target: Target, table: TargetTable, key: tuple[str, ...]) -> None:
    """Give key columns a limited length: MySQL allows no unlimited text in a key."""
    types = target.columns(table)
    wanted = {name: key_type(types[name], len(key)) for name in key}
    for name, type_ in fitting_types(wanted, key).items():
        if type_ is not types[name]:
            target.alter(table, f"MODIFY {target.quote(name)} {target.spell(type_)}")


_NUMBERING = {
    "postgresql": """
        UPDATE {table} AS t SET {column} = numbers.n + {before}
        FROM (SELECT tableoid, ctid, row_number() OVER (ORDER BY {key}) AS n FROM {table}) AS numbers
        WHERE (t.tableoid, t.ctid) = (numbers.tableoid, numbers.ctid)""",
    "mysql": """
        UPDATE {table} AS t
        JOIN (SELECT {key}, row_number() OVER (ORDER BY {key}) AS n FROM {table}) AS numbers USING ({key})
        SET t.{column} = numbers.n + {before}{unchanged}""",
    **dict.fromkeys(
        ("sqlite", "duckdb"),
        """
        UPDATE {table} AS t SET {column} = numbers.n + {before}
        FROM (SELECT {row_id} AS r, row_number() OVER (ORDER BY {key}) AS n FROM {table}) AS numbers
        WHERE t.{row_id} = numbers.r""",
    ),
}


def number_rows(target: Target, table: TargetTable, column: str, first: int, *, is_made: bool) -> None:
    """Number the rows from `first` in the order of the primary key.

    InnoDB numbers them so in the source and its replicas, but records do not contain these numbers. They
    stay NULL if the table has no key, or if the key contains text, whose order depends on a collation.
    `is_made`: binlane has created the table. Another one may have another key than the source."""
    key = target.key(table)
    if column in key or not target.any_row(table, f"{target.quote(column)} IS NULL"):
        return
    types = target.columns(table)
    ordered = (sa.Integer, sa.Numeric, sa.Date, sa.DateTime)
    if not key or not is_made or not all(isinstance(types[name], ordered) for name in key):
        log.warning(
            "ddl_rows_not_numbered", table=table.name, column=column, because="their order is unknown"
        )
        return
    names = {"table": target.ref(table), "column": target.quote(column)}
    names["key"] = ", ".join(target.quote(name) for name in key)
    names["row_id"] = row_id(types, target.family) if target.is_file else ""
    names["before"] = str(first - 1)
    names["unchanged"] = "".join(f", t.{one}" for one in target.unchanged(table))
    target.run(_NUMBERING[target.family].format(**names))


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
                target.kept.note_dropped(operation.table, target.kept.dropped(operation.like))
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


_TAKEN = sa.text(
    "SELECT own.relname FROM pg_index JOIN pg_class own ON own.oid = indexrelid JOIN pg_class other "
    "ON other.relname = own.relname AND other.relnamespace = quote_ident(:schema)::regnamespace "
    "WHERE indrelid = CAST(:table AS regclass)"
)
"""PostgreSQL: the indexes of a table whose names another schema has, too."""


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
        known = {"table": target.ref(table), "schema": schema}
        for index in target.connection.scalars(_TAKEN, known).all():  # it has the name of a former table
            free = f"{uuid4().hex}{index[-31:]}"
            target.run(f"ALTER INDEX {target.ref(table._replace(name=index))} RENAME TO {target.quote(free)}")
        target.alter(table, f"SET SCHEMA {target.quote(schema)}")
        table = table._replace(schema=new.schema)
    if table.name != new.name:
        target.alter(table, f"RENAME TO {target.quote(new.name)}")
    return True
