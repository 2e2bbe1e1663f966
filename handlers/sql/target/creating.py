"""Create schemas, tables and columns that the target lacks, from the source's changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa

from handlers.api import Change
from handlers.logs import get_logger
from handlers.sql.naming import check_names, exact, exact_table
from handlers.sql.target.known_tables import TableName
from handlers.sql.target.reflecting import own_name
from handlers.sql.types.column_types import sql_type
from handlers.sql.types.mysql_sizes import fitting_types
from handlers.sql.types.postgresql_types import extension_of
from handlers.values.native_types import in_full

log = get_logger("handlers.sql")

_HAS_TYPE = sa.text("SELECT to_regtype(:name)")


class TableMissing(Exception):
    """The table must be created first."""

    def __init__(
        self,
        name: TableName,
        columns: Mapping[str, str],
        key: tuple[str, ...],
        of_versions: Mapping[str, str] | None = None,
    ) -> None:
        """`of_versions`: columns for versions of rows, if it is to have any number of each key."""
        super().__init__(f"there is no table {name[1]}")
        self.name = name
        self.of_versions = of_versions or {}
        self.columns = columns
        """Column -> source type text."""
        self.key = key


class ColumnsMissing(Exception):
    """Columns must be added first."""

    def __init__(self, name: TableName, columns: Mapping[str, str]) -> None:
        super().__init__(f"the table {name[1]} lacks {', '.join(columns)}")
        self.name = name
        self.columns = columns


def wanted_columns(changes: Iterable[Change]) -> dict[str, str]:
    """Return column -> type text. It is inferred from values if the changes have no type for the column. If
    gathered databases spell a column differently, the first spelling counts."""
    wanted: dict[str, str] = {}
    spelled: dict[str, str] = {}
    told: set[int] = set()
    without: dict[str, Any] = {}
    for change in changes:
        if change.types is not None and id(change.types) not in told:
            told.add(id(change.types))
            types = in_full(change.types)
            if len({name.lower() for name in types}) == len(types):
                types = {spelled.setdefault(name.lower(), name): text for name, text in types.items()}
            wanted.update(types)
        for row in (change.before, change.after):
            for column, value in (row or {}).items():
                if column not in wanted and column.lower() not in spelled and without.get(column) is None:
                    without[column] = value
    return {**wanted, **{name: inferred_type(value) for name, value in without.items() if name not in wanted}}


def create(
    connection: sa.Connection,
    missing: TableMissing | ColumnsMissing,
    making: Callable[[], AbstractContextManager[None]],
) -> None:
    """Create what is missing. A table is created within `making`. Raises NameUnfit."""
    schema, table = missing.name
    added = missing.of_versions if isinstance(missing, TableMissing) else ()
    check_names((schema, table, *missing.columns, *added), connection.dialect.name)
    if isinstance(missing, TableMissing):
        _create_table(connection, missing, making)
    else:
        _add_columns(connection, missing)


def make_schema(connection: sa.Connection, schema: str | None) -> None:
    """Create the schema (in MySQL: database) if it does not exist. None is the connection's own schema."""
    if schema is None or sa.inspect(connection).has_schema(schema):
        return
    if connection.dialect.name == "postgresql":
        # IF NOT EXISTS fails if another session is creating the same schema.
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('binlane schemas'))")
    connection.execute(sa.schema.CreateSchema(exact(schema), if_not_exists=True))


def _create_table(
    connection: sa.Connection, missing: TableMissing, making: Callable[[], AbstractContextManager[None]]
) -> None:
    schema, name = missing.name
    make_schema(connection, schema)
    if sa.inspect(connection).has_table(name, schema=schema):
        return
    untold = [column for column in missing.key if column not in missing.columns]
    required = () if missing.of_versions else missing.key  # a history outlives columns of the source
    columns = {**dict.fromkeys(untold, "longtext"), **missing.columns, **missing.of_versions}
    types = {
        column: _type(connection, column, text, len(missing.key) if column in missing.key else 0)
        for column, text in columns.items()
    }
    if _is_mysql(connection):
        types = fitting_types(types, missing.key)
    table = sa.Table(
        exact(name),
        sa.MetaData(),
        *(
            # NOT NULL is not copied: invalid dates become None, and a change may lack columns.
            sa.Column(exact(column), type_, nullable=column not in required, autoincrement=False)
            for column, type_ in types.items()
        ),
        _finds_rows(connection, missing),
        schema=None if schema is None else exact(schema),
        mysql_charset="utf8mb4",
        mysql_collate=_collation(connection.dialect),
        mysql_engine="InnoDB",
    )
    with making():
        table.create(connection)
    log.info("table_created", table=".".join(filter(None, missing.name)))


def _finds_rows(connection: sa.Connection, missing: TableMissing) -> sa.sql.schema.SchemaItem:
    """Return the primary key, or in a table of versions an index. DuckDB alters no table with an index."""
    if not missing.of_versions:
        return sa.PrimaryKeyConstraint(*missing.key)
    if connection.dialect.name == "duckdb":
        return sa.PrimaryKeyConstraint()
    # A renamed table keeps its index, and a new one of its former name needs another.
    return sa.Index(f"{uuid4().hex}_binlane_versions", *missing.key)


def _add_columns(connection: sa.Connection, missing: ColumnsMissing) -> None:
    schema, name = missing.name
    found = sa.inspect(connection).get_columns(name, schema=schema)
    known = {own_name(column["name"], connection.dialect.name): column["type"] for column in found}
    preparer = connection.dialect.identifier_preparer
    table = preparer.format_table(exact_table(schema, name))
    for column, text in missing.columns.items():
        if column in known:
            continue
        known[column] = _type(connection, column, text)
        if _is_mysql(connection):
            known = fitting_types(known, (), (column,))
        made = sa.Column(exact(column), known[column], autoincrement=False)
        spelled = sa.schema.CreateColumn(made).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {spelled}")
        log.info("column_added", table=".".join(filter(None, missing.name)), column=column, type=text)


def fitting(connection: sa.Connection, column: str, text: str) -> str:
    """Return the type text, or MySQL's name for it if the target lacks the type's extension."""
    extension = extension_of(text) if connection.dialect.name == "postgresql" else None
    if extension is None or connection.scalar(_HAS_TYPE, {"name": extension}) is not None:
        return text
    log.warning("type_not_in_target", column=column, type=extension)
    return str(text)  # MySQL's name for it: json, or a text


def _type(connection: sa.Connection, name: str, text: str, key_parts: int = 0) -> sa.types.TypeEngine[Any]:
    return sql_type(fitting(connection, name, text), connection.dialect.name, key_parts=key_parts)


def _is_mysql(connection: sa.Connection) -> bool:
    return connection.dialect.name in ("mysql", "mariadb")


def _collation(dialect: Any) -> str:
    """Return a collation in which texts differ if any character differs, including spaces at the end. Keys
    that differ in the source must differ here as well."""
    if dialect.is_mariadb if hasattr(dialect, "is_mariadb") else False:
        return "utf8mb4_nopad_bin"
    version = getattr(dialect, "server_version_info", None) or ()
    return "utf8mb4_0900_bin" if version >= (8, 0, 17) else "utf8mb4_bin"


def inferred_type(value: Any) -> str:
    """Return a type text, as in a source, of a column for such values. None gives a text."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**63
        return "bigint" if fits else "bigint unsigned" if 0 <= value < 2**64 else "decimal(65,0)"
    if isinstance(value, datetime):
        return "datetime(6)" if value.tzinfo is None else "timestamp(6)"
    return next((text for kinds, text in _BY_KIND.items() if isinstance(value, kinds)), "longtext")


_BY_KIND: Mapping[type | tuple[type, ...], str] = {
    float: "double",
    Decimal: "decimal",
    date: "date",
    timedelta: "time(6)",
    (bytes, bytearray, memoryview): "longblob",
    UUID: "uuid",
    tuple: "set",
    (dict, list): "json",
}
