"""Targets: a handler that is open for many examples, and what one table holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import redis
import sqlalchemy as sa

from handlers import Handler
from handlers.clickhouse import ClickHouseHandler
from handlers.redis.handler import RedisHandler
from handlers.sql import SqlHandler
from handlers.sql.naming import Naming
from handlers.testing import opened

from .rules import GONE
from .source import COLUMNS, Row
from .told import OWN
from .writers.writing import Names

__all__ = ["Target", "clickhouse_target", "redis_target", "sql_target"]

AMOUNTS = {"amount", "total"}


@dataclass(frozen=True)
class Target:
    """`moves`: it moves a row that a record tells in part; `marks_all`: it can mark the rows of a truncate;
    `needs_old_rows`: each update and delete must tell the old row, and rows that are deleted must go."""

    type: str
    handler: Handler
    rows: Callable[[Names], list[Row]]
    """What a table holds, as text."""
    forget: Callable[[Names], None]
    """The table is not needed any more."""
    moves: bool = False
    marks_all: bool = False
    needs_old_rows: bool = False
    prepare: Callable[[Names], None] | None = None
    """Make the table, with a column of the target's own."""
    hand_out: Callable[[Names, str], None] | None = None
    """Set that column, where it is NULL."""


def _texts(row: Mapping[str, Any]) -> Row:
    """As `Expected` has it: how many digits a number is told with is not looked at here."""
    found = {name: str(value) for name, value in row.items() if value is not None}
    for name in AMOUNTS & found.keys():
        found[name] = str(Decimal(found[name]).quantize(Decimal("0.01")))
    return found | {GONE: "marked"} if GONE in found else found


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
        return [_texts(row) for row in self.run(f"SELECT * FROM {self.ref(names)}")]

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
        handler = stack.enter_context(opened(SqlHandler(url=url), folder, worker="w"))
        yield Target(
            "sql",
            handler,
            database.rows,
            database.forget,
            moves=True,
            marks_all=True,
            prepare=database.prepare if owns else None,
            hand_out=database.hand_out if owns else None,
        )


@contextmanager
def redis_target(url: str, *, key: str = "{database}:{table}:{key}", **options: Any) -> Iterator[Target]:
    with (
        redis.Redis.from_url(url, decode_responses=True) as client,
        opened(RedisHandler(url=url, key=key, **options)) as handler,
    ):
        is_json = options.get("value") == "json"

        def rows(names: Names) -> list[Row]:
            found = []
            for name in client.scan_iter(f"{names.database}:{names.table}:*"):
                text = client.get(name) if is_json else None
                row = client.hgetall(name) if text is None else json.loads(str(text))
                found.append(_texts(row))
                wanted = key.replace("{key}", ":".join(found[-1].get(part, "?") for part in names.key))
                assert name == wanted.format(database=names.database, table=names.table, **found[-1])
            return found

        yield Target(
            "redis",
            handler,
            rows,
            lambda _: _flush(client),
            needs_old_rows="{region}" in key,
        )


def _flush(client: Any) -> None:
    client.flushdb()


@contextmanager
def clickhouse_target(server: Any) -> Iterator[Target]:
    prefix = server.new_name()

    def rows(names: Names) -> list[Row]:
        place = f"{prefix}_{names.database}"
        found = server.query(
            f"SELECT count() FROM system.tables WHERE database = '{place}' AND name = '{names.table}'"
        )
        if found.strip() == "0":
            return []
        return [_texts(row) for row in server.rows(f"{place}.{names.table}")]

    def forget(names: Names) -> None:
        server.query(f"DROP DATABASE IF EXISTS {prefix}_{names.database}")

    with opened(ClickHouseHandler(**server.options, database=f"{prefix}_{{database}}")) as handler:
        yield Target("clickhouse", handler, rows, forget)
