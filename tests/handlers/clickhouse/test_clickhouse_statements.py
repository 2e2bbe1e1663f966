"""What happens to whole tables, in ClickHouse's own engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from servers.clickhouse_server import ClickHouseServer
from structlog.testing import capture_logs

from handlers import Batch, Rejected
from handlers.clickhouse import ClickHouseHandler
from handlers.testing import make_batch, opened

TYPES = {"id": "bigint", "name": "varchar(40)"}


@contextmanager
def handler(server: ClickHouseServer, **options: Any) -> Iterator[ClickHouseHandler]:
    made = ClickHouseHandler(**server.options, **options)
    with opened(made, handles=lambda table: "kept" in table):
        yield made


def rows(database: str, first: int, last: int, *, offset: int, table: str = "orders", **more: Any) -> Batch:
    changes = [
        {"after": {"id": number, "name": "a"}, "source_time_ms": offset} for number in range(first, last)
    ]
    return make_batch(
        f"{database}.{table}", changes, key="id", types=TYPES, topic="cdc", offset=offset, **more
    )


def statement(database: str, sql: str | None, *, offset: int, time: int = 0, topic: str = "cdc") -> Batch:
    change = {"sql": sql, "source_time_ms": time, "op": "truncate" if sql is None else "ddl"}
    return make_batch(f"{database}.orders", [change], topic=topic, offset=offset)


def ids(server: ClickHouseServer, database: str, table: str = "orders") -> list[int]:
    return [row["id"] for row in server.rows(f"{database}.{table}")]


@pytest.mark.parametrize("sql", [None, "TRUNCATE TABLE orders"])
def test_a_truncate_removes_what_is_older_however_often_it_comes(
    clickhouse: ClickHouseServer, database: str, sql: str | None
) -> None:
    with handler(clickhouse) as it:
        it.handle(rows(database, 0, 20, offset=0))
        for _ in range(2):
            it.handle(statement(database, sql, offset=20))
            it.handle(rows(database, 3, 5, offset=21))
            assert ids(clickhouse, database) == [3, 4]
        it.handle(rows(database, 0, 20, offset=0))
    assert ids(clickhouse, database) == [3, 4], "what is late stays away"


def test_a_truncate_among_rows_of_its_batch_removes_those_before_it(
    clickhouse: ClickHouseServer, database: str
) -> None:
    changes = [{"after": {"id": 1}}, {"sql": None, "op": "truncate"}, {"after": {"id": 2}}]
    with handler(clickhouse) as it:
        it.handle(make_batch(f"{database}.orders", changes, key="id", types={"id": "int"}, topic="cdc"))
    assert ids(clickhouse, database) == [2]


def test_of_other_partitions_a_truncate_removes_what_was_before_it(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse) as it:
        it.handle(rows(database, 0, 3, offset=1_000, partition=1))
        it.handle(rows(database, 3, 6, offset=2_000, partition=1))
        it.handle(statement(database, None, offset=5, time=1_500))
        it.handle(rows(database, 0, 3, offset=1_000, partition=1))
    assert ids(clickhouse, database) == [3, 4, 5]


def test_rows_that_come_back_after_a_statement_of_another_topic_are_there(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse) as it:
        it.handle(rows(database, 0, 3, offset=1_000))
        it.handle(statement(database, "TRUNCATE TABLE orders", offset=5, time=1_500, topic="statements"))
        assert ids(clickhouse, database) == []
        it.handle(rows(database, 1, 3, offset=2_000))
        it.handle(rows(database, 0, 1, offset=1_000))
    assert ids(clickhouse, database) == [1, 2]


def test_a_dropped_table_loses_its_rows_where_that_is_wanted(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse) as it:
        it.handle(rows(database, 0, 3, offset=0))
        it.handle(statement(database, "DROP TABLE orders", offset=3))
    assert ids(clickhouse, database) == [0, 1, 2]
    with handler(clickhouse, drop_tables=True) as it:
        it.handle(statement(database, "DROP TABLE orders", offset=3))
    assert ids(clickhouse, database) == []


def test_a_statement_reaches_no_table_of_others(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse) as it:
        for table in ("orders", "kept", "payroll"):
            it.handle(rows(database, 0, 3, offset=0, table=table))
        it.handle(statement(database, "TRUNCATE TABLE payroll", offset=4))
        it.handle(statement(database, "TRUNCATE TABLE kept", offset=5))
    assert [ids(clickhouse, database, table) for table in ("orders", "kept", "payroll")] == [
        [0, 1, 2],
        [],
        [0, 1, 2],
    ]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("ALTER TABLE orders ADD COLUMN note text DEFAULT 'new'", "a new column is added with the first row"),
        ("ALTER TABLE orders DROP COLUMN name", "a dropped column stays"),
        ("ALTER TABLE orders RENAME COLUMN name TO label", "gets a new column beside"),
        ("ALTER TABLE orders MODIFY COLUMN name int", "keeps its type"),
        ("ALTER TABLE orders DROP PRIMARY KEY", "keeps its sorting key"),
    ],
)
def test_a_statement_that_is_not_followed_is_told(
    clickhouse: ClickHouseServer, database: str, sql: str, told: str
) -> None:
    with handler(clickhouse) as it, capture_logs() as logs:
        it.handle(rows(database, 0, 1, offset=0))
        it.handle(statement(database, sql, offset=1))
    assert clickhouse.rows(f"{database}.orders") == [{"id": 0, "name": "a"}]
    (refused,) = (line for line in logs if line["event"] == "ddl_refused")
    assert told in refused["because"]


def test_a_statement_that_cannot_be_read_is_rejected(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse) as it, pytest.raises(Rejected, match="cannot parse DDL"):
        it.handle(statement(database, "ALTER TABLE orders ADD COLUMN (", offset=1))
