"""Segments that another worker puts, or a replay of dead letters, after a worker has read the log in."""

from __future__ import annotations

import time

import pytest
from spark_lake import Lake, change
from test_spark_handovers import ddl, other_worker, row, take

from handlers.mysql.ddl import TableName
from handlers.spark.log.beside import sign


def look(lake: Lake) -> None:
    lake.handler._open._search.round()  # type: ignore[union-attr]


def settle(lake: Lake) -> None:
    """Read its log in, of which the last segment has no rows then, if there is one."""
    lake.handler._open._tables._settle(TableName("shop", "orders"))  # type: ignore[union-attr]


def test_rows_that_another_worker_put_before_a_truncate_are_merged_before_it_is_followed(lake: Lake) -> None:
    lake.take(row(0))
    settle(lake)
    take(other_worker(lake), row(1), row(2))
    lake.take(change(3, None, None, op="truncate"))
    lake.sink().merge()
    assert lake.rows() == []


def test_rows_put_before_a_drop_go_with_the_table_though_the_log_was_empty_when_it_was_read(
    lake: Lake,
) -> None:
    settle(lake)
    other = other_worker(lake)
    take(other, row(0))
    other.merge()
    take(other, row(1), row(2))
    lake.take(ddl(3, "DROP TABLE orders"))
    lake.sink().merge()
    assert not (lake.folder / "lake/shop/orders/_delta_log").exists()


@pytest.mark.soak
def test_rows_that_another_worker_put_move_with_their_table_though_another_ones_batch_renames_it(
    lake: Lake,
) -> None:
    lake.take(row(0))
    settle(lake)
    take(other_worker(lake), row(1), row(2))
    lake.take(ddl(3, "RENAME TABLE orders TO older"), table="shop.items")
    lake.sink("orders").merge()
    assert lake.rows("id", path="lake/shop/older") == [(0,), (1,), (2,)]
    assert not (lake.folder / "lake/shop/orders").exists()


def test_what_others_put_into_a_log_that_is_served_is_merged_though_no_batch_comes(lake: Lake) -> None:
    """A replay of dead letters; or a worker that had one of the table's partitions for a while, and died."""
    lake.take(row(0))
    take(other_worker(lake), row(1))
    look(lake)
    assert lake.status()["waiting_rows"] == 2
    lake.sink().merge()
    assert lake.rows("id") == [(0,), (1,)]


def test_a_log_that_was_looked_at_before_it_was_signed_is_looked_at_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("handlers.spark.engine.tables.sign", lambda *of: (look(lake), sign(*of))[1])
        lake.take(row(0))
    take(other_worker(lake), row(1))
    look(lake)
    assert lake.status()["waiting_rows"] == 2


def test_an_idle_log_that_its_owner_writes_again_is_left_to_it_until_the_partition_arrives(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.take(row(0))
    lake.partitions = set()
    lake.handler.release([("cdc", 0)])
    with monkeypatch.context() as later:
        now = time.time()
        later.setattr(time, "time", lambda: now + 700)
        look(lake)
    assert lake.status()["waiting_rows"] == 1, "nobody wrote it for ten minutes"
    take(other_worker(lake), row(1))
    look(lake)
    assert lake.status() == {}
    lake.partitions = {("cdc", 0)}
    look(lake)
    assert lake.status()["waiting_rows"] == 2
    lake.sink().merge()
    assert lake.rows("id") == [(0,), (1,)]
