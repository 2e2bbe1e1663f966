"""Tables of SQL databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from handlers.sql import SqlHandler
from handlers.sql.naming import Naming
from handlers.testing import opened

from ..source import COLUMNS, Row
from ..told import OWN, Limits
from ..writers.writing import Names
from .interface import Target, texts
from .reopening import reopened


class _Database:
    """Tables of one database, looked at beside its handler."""

    def __init__(self, url: str, *, owns: bool) -> None:
        self.engine = sa.create_engine(url)
        self.dialect = self.engine.dialect.name
        self.naming = Naming.of(self.dialect)
        self.owns = owns

    def ref(self, names: Names) -> str:
        schema, table = self.naming.target(names.database, names.table)
        quote = self.engine.dialect.identifier_preparer.quote_identifier
        return ".".join(quote(part) for part in (schema, table) if part is not None)

    def run(self, *statements: str) -> list[Row]:
        with self.engine.begin() as connection:
            for sql in statements:
                options = {"no_parameters": True, "sqlite_raw_colnames": True}
                result = connection.exec_driver_sql(sql, execution_options=options)
            return [dict(row._mapping) for row in result] if result.returns_rows else []

    def rows(self, names: Names) -> list[Row]:
        schema, table = self.naming.target(names.database, names.table)
        if not sa.inspect(self.engine).has_table(table, schema=schema):
            return []
        return [texts(row) for row in self.run(f"SELECT * FROM {self.ref(names)}")]

    def prepare(self, names: Names) -> None:
        columns = [f"{name} {kind}" for name, kind in COLUMNS.items()]
        columns += [f"{OWN} varchar(40)", f"PRIMARY KEY ({', '.join(names.key)})"]
        schema, _ = self.naming.target(names.database, names.table)
        if schema is not None:
            self.run(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self.run(f"CREATE TABLE {self.ref(names)} ({', '.join(columns)})")

    def hand_out(self, names: Names, mark: str) -> None:
        self.run(f"UPDATE {self.ref(names)} SET {OWN} = '{mark}' WHERE {OWN} IS NULL")

    def forget(self, names: Names) -> None:
        self.run(f"DROP TABLE IF EXISTS {self.ref(names)}")


@contextmanager
def sql_target(url: str, folder: Path, *, owns: bool = False) -> Iterator[Target]:
    """`owns`: tables are there before, with a column that the source has not."""
    with ExitStack() as stack:
        database = _Database(url, owns=owns)
        stack.callback(database.engine.dispose)
        handler = stack.enter_context(reopened(lambda: opened(SqlHandler(url=url), folder, worker="w")))
        yield Target(
            "sql",
            handler,
            database.rows,
            database.forget,
            Limits(moves=True, marks_all=True, keeps_own=owns, without_key="untried" if owns else "match"),
            prepare=database.prepare if owns else None,
            hand_out=database.hand_out if owns else None,
            restart=handler.restart,
        )
