"""A statement that failed half way, and comes again as a dead letter after later rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sql_lab import SqlLab, orders

from handlers import Batch, Rejected
from handlers.testing import make_batch

SQL = "ALTER TABLE orders DROP COLUMN price, CHANGE price_new price tinyint"
TYPES = {"id": "int", "price": "int", "price_new": "int"}


def statement(offset: int, *, sql: str = SQL, **fields: Any) -> Batch:
    return make_batch("shop.orders", [{"sql": sql, "source_time_ms": offset}], offset=offset, **fields)


def letter(of: int, *, time_ms: int | None = None, sql: str = SQL) -> Batch:
    change = {"sql": sql, "source_time_ms": of if time_ms is None else time_ms}
    batch = make_batch("shop.orders", [change], topic="dead@0", offset=0)
    batch.replay_of = ("test", 0, of)
    return batch


def test_a_replayed_statement_goes_on_where_it_failed(make_sql: Callable[[str], SqlLab]) -> None:
    lab = make_sql("mariadb")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "price": 1, "price_new": 300}, types=TYPES, offset=1))
        for offset, sql in ((2, SQL), (3, "ALTER TABLE orders ADD c int, MODIFY price tinyint")):
            with pytest.raises(Rejected, match="Out of range"):
                handler.handle(statement(offset, sql=sql))
        now = {"id": "int", "price": "int", "c": "int"}
        handler.handle(orders({"id": 1, "price": 30, "c": 5}, types=now, offset=4))
    with lab.handler() as handler:
        handler.handle(letter(2))
        assert lab.rows() == [{"id": 1, "price": 30, "c": 5}]
        handler.handle(letter(2))
        # The other statement is still remembered, and shards have their marks beside it.
        assert lab.run("SELECT kafka_offset FROM binlane_marks WHERE ddl_step IS NOT NULL") == [(3,)]
        handler.handle(orders({"id": 1, "price": 31, "c": 6}, types=now, offset=5, shard=0))
        handler.handle(orders({"id": 1, "price": 32, "c": 7}, types=now, offset=6))
        assert lab.run("SELECT kafka_offset FROM binlane_marks WHERE ddl_step IS NOT NULL") == [(3,)]
    assert lab.rows() == [{"id": 1, "price": 32, "c": 7}]


def test_the_same_text_at_the_same_place_of_another_time_is_another_statement(
    make_sql: Callable[[str], SqlLab],
) -> None:
    lab = make_sql("mariadb")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "price": 1, "price_new": 300}, types=TYPES, offset=1))
        with pytest.raises(Rejected, match="Out of range"):
            handler.handle(statement(2))
        handler.handle(orders({"id": 1, "price": 9, "price_new": 30}, types=TYPES, offset=3))
        handler.handle(letter(2, time_ms=77))
    assert lab.rows() == [{"id": 1, "price": 30}]
