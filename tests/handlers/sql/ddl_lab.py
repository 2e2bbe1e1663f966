"""A target database, into which tests put tables and rows, and where they follow DDL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from psycopg.types.json import set_json_loads

from handlers import Change
from handlers.mysql.ddl import TableName
from handlers.mysql.ddl.rules import DDLRules
from handlers.sql.ddl.following import DDLResult, apply
from handlers.sql.marks import Marks
from handlers.sql.naming import Naming
from handlers.sql.types.column_types import sql_type
from handlers.sql.types.values import encode, kind_of

__all__ = ["DDLLab"]

TIME_MS = 1_750_000_000_000  # 2025-06-15T15:06:40Z


class DDLLab:
    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url)
        if url.startswith("postgresql"):
            sa.event.listen(self.engine, "connect", _keep_json_as_text)
        self.dialect = self.engine.dialect.name
        self.naming = Naming.of(self.dialect)
        self.marks = Marks("binlane_marks", "w", "h", self.engine.dialect)
        self.handles: Callable[[str], bool] = lambda _: True

    def drop_all(self) -> None:
        """The tables of `db` and `other`, which earlier tests may have left."""
        for database in ("db", "other"):
            schema = self.naming.target(database, "t")[0]
            with self.engine.begin() as connection:
                if schema is not None:
                    kind = "DATABASE" if self.dialect == "mysql" else "SCHEMA"
                    cascade = "" if self.dialect == "mysql" else " CASCADE"
                    connection.exec_driver_sql(f"DROP {kind} IF EXISTS {schema}{cascade}")
        with self.engine.begin() as connection:
            self.marks.table.drop(connection, checkfirst=True)
            self.marks.create(connection)

    def follow(
        self,
        sql: str | None,
        *,
        database: str = "db",
        table: str = "t",
        times: int = 2,
        rules: DDLRules | None = None,
    ) -> DDLResult:
        """The statement in a transaction of its own, as often as asked; what it did the first time."""
        op = "truncate" if sql is None else "ddl"
        change = Change(op, None, None, None, sql, TIME_MS, "cdc", 0, 7, 0, None, None)
        results = []
        for _ in range(times):
            with self.engine.begin() as connection:
                result = apply(
                    self.marks.kept(connection),
                    change,
                    rules or DDLRules(),
                    self.naming,
                    own=TableName(database, table),
                    handles=self.handles,
                )
                results.append(result)
        return results[0]

    def put(
        self, types: Mapping[str, str], *rows: Mapping[str, Any], table: str = "t", database: str = "db"
    ) -> None:
        """Rows as the handler writes them. `types`: column -> source type."""
        names = list(types)
        kinds = [kind_of(sql_type(types[name], self.dialect)) for name in names]
        columns = [
            encode([row[name] for row in rows], kind, self.dialect)
            for name, kind in zip(names, kinds, strict=True)
        ]
        quote = self.engine.dialect.identifier_preparer.quote_identifier
        marks = ", ".join(["?" if self.dialect in ("sqlite", "duckdb") else "%s"] * len(names))
        listed = ", ".join(quote(one) for one in names)
        with self.engine.begin() as connection:
            for row in zip(*columns, strict=True):
                connection.exec_driver_sql(
                    f"INSERT INTO {self.ref(table, database)} ({listed}) VALUES ({marks})", row
                )

    def rows(
        self, columns: str = "*", table: str = "t", database: str = "db"
    ) -> list[tuple[str | None, ...]]:
        """All rows, values as text, in the order of that text. `columns`: a list, as SELECT takes it."""
        with self.engine.connect() as connection:
            found = connection.exec_driver_sql(f"SELECT {columns} FROM {self.ref(table, database)}").all()
        return sorted((tuple(map(_text, row)) for row in found), key=str)

    def columns(self, table: str = "t", database: str = "db") -> list[str]:
        schema, name = self.naming.target(database, table)
        # SQLAlchemy gives MySQL's names as SHOW CREATE TABLE escapes them.
        found = sa.inspect(self.engine).get_columns(name, schema=schema)
        return [column["name"].replace("``", "`") for column in found]

    def type_of(self, column: str) -> str:
        schema, name = self.naming.target("db", "t")
        found = sa.inspect(self.engine).get_columns(name, schema=schema)
        return next(str(one["type"]) for one in found if one["name"] == column)

    def key(self, table: str = "t", database: str = "db") -> list[str]:
        schema, name = self.naming.target(database, table)
        return list(sa.inspect(self.engine).get_pk_constraint(name, schema=schema)["constrained_columns"])

    def has(self, table: str, database: str = "db") -> bool:
        schema, name = self.naming.target(database, table)
        return sa.inspect(self.engine).has_table(name, schema=schema)

    def ref(self, table: str, database: str) -> str:
        quote = self.engine.dialect.identifier_preparer.quote_identifier
        return ".".join(quote(part) for part in self.naming.target(database, table) if part is not None)


def _keep_json_as_text(connection: Any, _: Any) -> None:
    set_json_loads(lambda text: text if isinstance(text, str) else bytes(text).decode(), connection)


def _text(value: Any) -> str | None:
    if isinstance(value, list | set):
        return ",".join(value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return None if value is None else str(value)
