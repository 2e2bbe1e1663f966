"""SQLAlchemy dialect and driver of DuckDB: PostgreSQL's syntax and DuckDB's differences, without another
package.

https://duckdb.org/docs/stable/sql/introduction. A file is one catalog, named after the file. A schema with
the same name would be ambiguous, so schema names are qualified with the catalog."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partialmethod
from itertools import islice
from types import ModuleType
from typing import Any

import duckdb
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import base
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.types import NullType, TypeEngine

from handlers.sql.types.column_types import UBigInt

_Types = Mapping[str, Callable[[], TypeEngine[Any]]]
_TYPES: _Types = {
    **dict.fromkeys(("TINYINT", "UTINYINT", "SMALLINT"), sa.SMALLINT),
    **dict.fromkeys(("USMALLINT", "INTEGER"), sa.INTEGER),
    **dict.fromkeys(("UINTEGER", "BIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"), sa.BIGINT),
    "UBIGINT": UBigInt,
    "FLOAT": sa.REAL,
    "DOUBLE": sa.DOUBLE_PRECISION,
    "BOOLEAN": sa.BOOLEAN,
    "VARCHAR": sa.TEXT,
    "JSON": postgresql.JSON,
    "BLOB": postgresql.BYTEA,
    "UUID": lambda: postgresql.UUID(as_uuid=False),
    "DATE": sa.DATE,
    "TIME": sa.TIME,
    "TIME_NS": lambda: postgresql.TIME(precision=9),
    "TIME WITH TIME ZONE": lambda: sa.TIME(timezone=True),
    "TIMESTAMP": postgresql.TIMESTAMP,
    "TIMESTAMP_NS": lambda: postgresql.TIMESTAMP(precision=9),
    "TIMESTAMP_MS": lambda: postgresql.TIMESTAMP(precision=3),
    "TIMESTAMP_S": lambda: postgresql.TIMESTAMP(precision=0),
    "TIMESTAMP WITH TIME ZONE": lambda: postgresql.TIMESTAMP(timezone=True),
    "INTERVAL": postgresql.INTERVAL,
}
_DIMENSIONS = re.compile(r"(\[\d*\])+$")
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


def declared_type(text: str) -> TypeEngine[Any]:
    """Return SQLAlchemy's type for a type name of DuckDB."""
    if text.endswith("]"):  # of any number of dimensions and items
        return postgresql.ARRAY(declared_type(_DIMENSIONS.sub("", text)))
    if found := _DECIMAL.fullmatch(text):
        return sa.NUMERIC(int(found[1]), int(found[2]))
    if text.startswith("ENUM("):
        return sa.TEXT()
    made = _TYPES.get(text)
    return NullType() if made is None else made()


class _TypeCompiler(base.PGTypeCompiler):
    def visit_UBIGINT(self, type_: UBigInt, **_: Any) -> str:  # noqa: N802 (SQLAlchemy's own naming)
        return "UBIGINT"


class _Preparer(base.PGIdentifierPreparer):
    def quote_schema(self, schema: str) -> str:
        catalog: str = getattr(self.dialect, "catalog", "")
        quoted = super().quote_schema(schema)
        return f"{self.quote_identifier(catalog)}.{quoted}" if catalog else quoted

    format_schema = quote_schema


class DuckDBDialect(DefaultDialect):
    name = "duckdb"
    driver = "binlane"
    statement_compiler = base.PGCompiler
    ddl_compiler = base.PGDDLCompiler
    supports_native_boolean = True
    supports_smallserial = False
    supports_identity_columns = False
    _supports_jsonb_subscripting = False
    _backslash_escapes = False
    default_paramstyle = "qmark"
    supports_statement_cache = True
    type_compiler_cls = _TypeCompiler
    preparer = _Preparer
    catalog = ""
    """The catalog of the file; empty until it is opened."""

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return sys.modules[__name__]

    def create_connect_args(self, url: sa.URL) -> Any:
        return [url.database or ""], {}

    def initialize(self, connection: sa.Connection) -> None:
        self.catalog, self.default_schema_name = connection.exec_driver_sql(
            "SELECT current_database(), current_schema()"
        ).one()
        self.default_isolation_level = None

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        # After a disk error every statement fails until the file is reopened.
        return type(e).__name__ in ("FatalException", "ConnectionException")

    # ---- reflection; names are not case-sensitive

    def has_schema(self, connection: sa.Connection, schema_name: str, **_: Any) -> bool:
        return schema_name.lower() in {one.lower() for one in self.get_schema_names(connection)}

    def get_schema_names(self, connection: sa.Connection, **_: Any) -> Any:
        sql = "SELECT schema_name FROM duckdb_schemas() WHERE database_name = current_database()"
        return connection.exec_driver_sql(sql).scalars().all()

    def get_table_names(self, connection: sa.Connection, schema: str | None = None, **_: Any) -> Any:
        sql = (
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() "
            "AND lower(schema_name) = lower(?)"
        )
        return connection.exec_driver_sql(sql, (schema or self.default_schema_name,)).scalars().all()

    def has_table(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> bool:
        return bool(self._rows(connection, "column_name", "columns", table_name, schema))

    def get_columns(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        """Also return the type name of DuckDB, as `declared`."""
        wanted = "column_name, data_type, is_nullable, column_default, is_generated"
        found = self._rows(connection, wanted, "columns", table_name, schema)
        if not found:
            raise sa.exc.NoSuchTableError(table_name)
        return [
            {
                "name": name,
                "type": declared_type(type_),
                "declared": type_,
                "nullable": nullable,
                "default": default,
                **({"computed": {"sqltext": default}} if is_generated else {}),
            }
            for name, type_, nullable, default, is_generated in found
        ]

    def get_pk_constraint(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        found = self._constraints("PRIMARY KEY", connection, table_name, schema)
        return found[0] if found else {"constrained_columns": [], "name": None}

    def get_indexes(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        """Return indexes without columns: DuckDB shows expressions as text. They never serve as keys."""
        found = self._rows(connection, "index_name, is_unique", "indexes", table_name, schema)
        return [{"name": name, "unique": unique, "column_names": [None]} for name, unique in found]

    def _constraints(
        self, kind: str, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        wanted = "constraint_type, constraint_column_names"
        return [
            {"name": None, "column_names": list(columns), "constrained_columns": list(columns)}
            for type_, columns in self._rows(connection, wanted, "constraints", table_name, schema)
            if type_ == kind
        ]

    get_unique_constraints = partialmethod(_constraints, "UNIQUE")
    get_check_constraints = partialmethod(_constraints, "CHECK")
    get_foreign_keys = partialmethod(_constraints, "FOREIGN KEY")

    def _rows(self, connection: sa.Connection, wanted: str, of: str, table: str, schema: str | None) -> Any:
        sql = (
            f"SELECT {wanted} FROM duckdb_{of}() WHERE database_name = current_database() "
            "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
        )
        own = schema if schema is not None else self.default_schema_name
        return connection.exec_driver_sql(sql, (own, table)).all()


# ---- an adapter that makes DuckDB's driver follow PEP 249, as SQLAlchemy needs it

# DuckDB's own cursors are connections, each with its own transaction. These cursors share one connection and
# read all rows of a statement at once.

paramstyle = "qmark"
Error = duckdb.Error
DatabaseError = duckdb.DatabaseError

_QUERY = re.compile(r"\s*(SELECT|WITH|FROM|VALUES|PRAGMA|SHOW|DESCRIBE)\b", re.IGNORECASE)


class Cursor:
    """The rows of one statement."""

    arraysize = 1

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self.description: Sequence[Any] | None = None
        self.rowcount = -1

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self._take(self._connection.execute(sql, list(parameters)), sql)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._take(self._connection.executemany(sql, [list(row) for row in rows]), sql)

    def _take(self, result: duckdb.DuckDBPyConnection, sql: str) -> None:
        found = result.fetchall() if result.description else []
        is_query = _QUERY.match(sql) is not None
        self._rows = iter(found if is_query else ())
        self.description = result.description if is_query else None
        # Other statements return the number of changed rows.
        is_counted = not is_query and found and isinstance(found[0][0], int)
        self.rowcount = found[0][0] if is_counted else -1

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        return list(islice(self._rows, size or self.arraysize))

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def close(self) -> None:
        self._rows = iter(())


class Connection:
    """A connection for one thread at a time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.commit = connection.commit
        self.close = connection.close

    def cursor(self) -> Cursor:
        return Cursor(self._connection)

    def rollback(self) -> None:
        with suppress(duckdb.TransactionException):  # no transaction is open
            self._connection.rollback()


def connect(file: str) -> Connection:
    """Open the file. Raises duckdb.Error."""
    return Connection(duckdb.connect(file))
