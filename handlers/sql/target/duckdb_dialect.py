"""DuckDB for SQLAlchemy: PostgreSQL's spelling, with what is DuckDB's own; no package of its own is needed.

https://duckdb.org/docs/stable/sql/introduction. A file is one catalog, named after the file; a schema of the
same name would be ambiguous, so names of schemas are spelled with their catalog.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.base import (
    PGCompiler,
    PGDDLCompiler,
    PGIdentifierPreparer,
    PGTypeCompiler,
)
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.types import NullType, TypeEngine

from handlers.sql.types.duckdb_types import UBigInt

__all__ = ["DuckDBDialect", "declared_type"]

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
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_NS"), postgresql.TIMESTAMP),
    "TIMESTAMP_MS": lambda: postgresql.TIMESTAMP(precision=3),
    "TIMESTAMP_S": lambda: postgresql.TIMESTAMP(precision=0),
    "TIMESTAMP WITH TIME ZONE": lambda: postgresql.TIMESTAMP(timezone=True),
    "INTERVAL": postgresql.INTERVAL,
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


def declared_type(text: str) -> TypeEngine[Any]:
    """A column's type, as DuckDB names it."""
    if text.endswith("[]"):
        return postgresql.ARRAY(declared_type(text[:-2]))
    if found := _DECIMAL.fullmatch(text):
        return sa.NUMERIC(int(found[1]), int(found[2]))
    if text.startswith("ENUM("):
        return sa.TEXT()
    made = _TYPES.get(text)
    return NullType() if made is None else made()


class _TypeCompiler(PGTypeCompiler):
    def visit_UBIGINT(self, type_: UBigInt, **_: Any) -> str:  # noqa: N802 (SQLAlchemy's own naming)
        return "UBIGINT"


class _Preparer(PGIdentifierPreparer):
    def quote_schema(self, schema: str) -> str:
        catalog: str = getattr(self.dialect, "catalog", "")
        return f"{self._in_catalog(catalog)}{super().quote_schema(schema)}"

    def format_schema(self, name: Any) -> str:
        return self.quote_schema(name)

    def _in_catalog(self, catalog: str) -> str:
        return f"{self.quote_identifier(catalog)}." if catalog else ""


class DuckDBDialect(DefaultDialect):
    name = "duckdb"
    driver = "binlane"
    statement_compiler = PGCompiler
    ddl_compiler = PGDDLCompiler
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
    """Of the file, once it is open."""

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return importlib.import_module("handlers.sql.target.duckdb_driver")

    def create_connect_args(self, url: sa.URL) -> Any:
        return [url.database or ""], {}

    def initialize(self, connection: sa.Connection) -> None:
        self.catalog, self.default_schema_name = connection.exec_driver_sql(
            "SELECT current_database(), current_schema()"
        ).one()
        self.default_isolation_level = None

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        # After an error of the disk nothing goes any more until the file is opened anew.
        return type(e).__name__ == "FatalException" or "Connection already closed" in str(e)

    # ---- what there is; names know no case

    def has_schema(self, connection: sa.Connection, schema_name: str, **_: Any) -> bool:
        return schema_name.lower() in {one.lower() for one in self.get_schema_names(connection)}

    def get_schema_names(self, connection: sa.Connection, **_: Any) -> Any:
        return (
            connection.exec_driver_sql(
                "SELECT schema_name FROM duckdb_schemas() WHERE database_name = current_database()"
            )
            .scalars()
            .all()
        )

    def get_table_names(self, connection: sa.Connection, schema: str | None = None, **_: Any) -> Any:
        sql = (
            "SELECT table_name FROM duckdb_tables() "
            "WHERE database_name = current_database() AND lower(schema_name) = lower(?)"
        )
        own = schema if schema is not None else self.default_schema_name
        return connection.exec_driver_sql(sql, (own,)).scalars().all()

    def has_table(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> bool:
        return bool(self._columns(connection, table_name, schema))

    def get_columns(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        """Each has also its type as DuckDB names it, as `declared`."""
        found = self._columns(connection, table_name, schema)
        if not found:
            raise sa.exc.NoSuchTableError(table_name)
        sql = self._one(connection, "SELECT sql FROM duckdb_tables() WHERE {of_table}", table_name, schema)
        return [
            {
                "name": name,
                "type": declared_type(type_),
                "declared": type_,
                "nullable": nullable,
                "default": default,
                **({"computed": {"sqltext": default}} if _is_generated(name, str(sql)) else {}),
            }
            for name, type_, nullable, default in found
        ]

    def get_pk_constraint(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        found = self._constraints(connection, table_name, schema, "PRIMARY KEY")
        return {"constrained_columns": list(found[0]) if found else [], "name": None}

    def get_unique_constraints(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        found = self._constraints(connection, table_name, schema, "UNIQUE")
        return [{"name": None, "column_names": list(columns)} for columns in found]

    def get_indexes(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        """Their expressions are text: no column of theirs is told, and rows are not found by them."""
        found = self._rows(
            connection,
            "SELECT index_name, is_unique FROM duckdb_indexes() WHERE {of_table}",
            table_name,
            schema,
        )
        return [{"name": name, "unique": unique, "column_names": [None]} for name, unique in found]

    def _columns(self, connection: sa.Connection, table: str, schema: str | None) -> Any:
        return self._rows(
            connection,
            "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() "
            "WHERE {of_table} ORDER BY column_index",
            table,
            schema,
        )

    def _constraints(self, connection: sa.Connection, table: str, schema: str | None, kind: str) -> Any:
        sql = (
            "SELECT constraint_column_names FROM duckdb_constraints() "
            f"WHERE {{of_table}} AND constraint_type = '{kind}'"
        )
        return [row[0] for row in self._rows(connection, sql, table, schema)]

    def _one(self, connection: sa.Connection, sql: str, table: str, schema: str | None) -> Any:
        found = self._rows(connection, sql, table, schema)
        return found[0][0] if found else None

    def _rows(self, connection: sa.Connection, sql: str, table: str, schema: str | None) -> Any:
        of_table = (
            "database_name = current_database() "
            "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
        )
        own = schema if schema is not None else self.default_schema_name
        return connection.exec_driver_sql(sql.format(of_table=of_table), (own, table)).all()


def _is_generated(column: str, sql: str) -> bool:
    """Whether the table's definition computes the column: DuckDB tells that nowhere else."""
    quoted = re.escape('"' + column.replace('"', '""') + '"')
    bare = re.escape(column)
    definition = rf"[(,]\s*(?:{quoted}|{bare})\s[^,]*?\bGENERATED\s+ALWAYS\s+AS\b"
    return re.search(definition, sql, re.IGNORECASE) is not None
