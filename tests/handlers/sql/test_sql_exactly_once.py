"""Each change is applied once, however often and in whatever pieces it is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
import sqlalchemy as sa
from sql_lab import SqlLab, orders

from handlers import Batch, Change, Rejected
from handlers.rows import shard_of
from handlers.sql.applying import Applier
from handlers.sql.marks import Pending

TYPES = {"id": "int", "n": "int"}


def event(number: int) -> dict[str, Any]:
    return {"id": number, "n": 0}


def piece(batch: Batch, start: int, end: int, *, shard: int | None = None) -> Batch:
    return part(batch, batch.changes[start:end], shard=shard)


def part(batch: Batch, changes: Sequence[Change], *, shard: int | None = None) -> Batch:
    offsets = [change.offset for change in changes]
    positions = {("test", 0): (min(offsets), max(offsets))} if offsets else {}
    return Batch(
        batch.table,
        changes,
        database=batch.database,
        name=batch.name,
        positions=positions,
        shard=shard,
    )


def id_of(change: Change) -> int:
    return int((change.key or {})["id"])


def numbers(sql: SqlLab) -> list[int]:
    return sorted(one["id"] for one in sql.rows())


def test_a_batch_that_comes_again_changes_nothing(sql: SqlLab) -> None:
    """Of a table without a key, where a second time would show."""
    batch = orders(event(1), event(1), {"before": event(1), "after": event(2)}, key=None, types=TYPES)
    with sql.handler() as handler:
        handler.handle(batch)
        handler.handle(batch)
    with sql.handler() as after_a_restart:
        after_a_restart.handle(batch)
    assert numbers(sql) == [1, 2]
    assert sql.marks() == [("shop.orders", -1, "test", 0, 2, 0)]


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 5))]
)
def test_batches_that_come_again_cut_differently_are_applied_once(sql: SqlLab, seed: int) -> None:
    random = Random(seed)
    batch = orders(*map(event, range(100)), key=None, types=TYPES)
    with sql.handler() as handler:
        done = 0
        while done < 100:
            start = random.randint(0, done)
            end = random.randint(start, min(100, start + 30))
            if start < end:
                handler.handle(piece(batch, start, end))
                done = max(done, end)
    assert numbers(sql) == list(range(100))


def test_rows_of_one_record_are_told_apart_by_their_index(sql: SqlLab) -> None:
    rows = [{"after": event(number), "offset": 7, "index": number} for number in range(4)]
    batch = orders(*rows, key=None, types=TYPES)
    with sql.handler() as handler:
        handler.handle(piece(batch, 0, 2))
        handler.handle(batch)
    assert numbers(sql) == [0, 1, 2, 3]


def test_partitions_have_marks_of_their_own(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(event(1), key=None, types=TYPES, partition=0, offset=50))
        handler.handle(orders(event(2), key=None, types=TYPES, partition=1, offset=3))
        handler.handle(orders(event(3), key=None, types=TYPES, topic="other", offset=3))
    assert numbers(sql) == [1, 2, 3]


def test_workers_and_handlers_have_marks_of_their_own(sql: SqlLab) -> None:
    batch = orders(event(1), key=None, types=TYPES)
    for worker in ("w", "v", "w"):
        with sql.handler(worker=worker) as handler:
            handler.handle(batch)
    assert numbers(sql) == [1, 1]


def test_a_batch_that_fails_leaves_neither_rows_nor_marks(server: SqlLab) -> None:
    server.make("shop.orders", "id int PRIMARY KEY, n int CHECK (n < 5)")
    batch = orders(event(1), event(2), {"id": 3, "n": 9}, event(4), types=TYPES)
    with server.handler() as handler:
        with pytest.raises(Rejected) as told:
            handler.handle(batch)
        assert told.value.at == 2
        assert server.rows() == []
        assert server.marks() == []
        # As the worker goes on: what is before it, then what is after it.
        handler.handle(piece(batch, 0, 2))
        handler.handle(piece(batch, 3, 4))
    assert numbers(server) == [1, 2, 4]


def test_a_table_dropped_since_is_not_made_again_by_changes_that_come_again(sql: SqlLab) -> None:
    rows = orders(event(1), event(2), types=TYPES)
    drop = orders({"op": "ddl", "sql": "DROP TABLE `orders`"}, offset=2)
    with sql.handler() as handler:
        for batch in (rows, drop, rows, drop):
            handler.handle(batch)
    assert not sql.has("shop.orders")


def test_ddl_that_comes_again_is_passed_over(sql: SqlLab) -> None:
    """The rename's second time would take the new table for the old one."""
    first = orders(event(1), types=TYPES)
    rename = orders({"op": "ddl", "sql": "RENAME TABLE orders TO old_orders"}, offset=1)
    second = orders(event(2), offset=2, types=TYPES)
    with sql.handler() as handler:
        for batch in (first, rename, second, first, rename, second):
            handler.handle(batch)
    assert numbers(sql) == [2]
    assert [one["id"] for one in sql.rows("shop.old_orders")] == [1]


# ---- order_by: row


def by_shard(batch: Batch) -> dict[int | None, list[Change]]:
    shards: dict[int | None, list[Change]] = {}
    for change in batch.changes:
        shards.setdefault(shard_of(change), []).append(change)
    return shards


def test_shards_advance_each_for_itself(sql: SqlLab) -> None:
    batch = orders(*map(event, range(200)), types=TYPES)
    shards = by_shard(batch)
    assert len(shards) > 5
    with sql.handler() as handler:
        ahead, *others = shards.items()
        handler.handle(part(batch, ahead[1], shard=ahead[0]))
        sql.run(f"UPDATE {sql.ref('shop.orders')} SET n = 1")
        for shard, changes in [ahead, *others]:
            handler.handle(part(batch, changes, shard=shard))
    rows = sql.rows()
    assert len(rows) == 200
    # What came twice was not written twice.
    assert {one["id"] for one in rows if one["n"] == 1} == {id_of(change) for change in ahead[1]}


def test_after_a_change_of_the_whole_table_its_shards_need_no_marks(sql: SqlLab) -> None:
    batch = orders(*map(event, range(50)), types=TYPES)
    with sql.handler() as handler:
        for shard, changes in by_shard(batch).items():
            handler.handle(part(batch, changes, shard=shard))
        assert len(sql.marks()) > 5
        handler.handle(orders({"op": "truncate", "sql": "TRUNCATE orders"}, offset=50))
        assert sql.marks() == [("shop.orders", -1, "test", 0, 50, 0)]
        for shard, changes in by_shard(batch).items():
            handler.handle(part(batch, changes, shard=shard))
    assert sql.rows() == []


def test_batches_of_the_whole_table_know_what_its_shards_have_done(sql: SqlLab) -> None:
    """After order_by was changed from row to table."""
    batch = orders(*map(event, range(100)), types=TYPES)
    shards = by_shard(batch)
    done = list(shards.items())[:3]
    with sql.handler() as handler:
        for shard, changes in done:
            handler.handle(part(batch, changes, shard=shard))
        sql.run(f"UPDATE {sql.ref('shop.orders')} SET n = 1")
        handler.handle(batch)
        assert sql.marks() == [("shop.orders", -1, "test", 0, 99, 0)]
    rows = sql.rows()
    assert len(rows) == 100
    assert {one["id"] for one in rows if one["n"] == 1} == {id_of(one) for _, group in done for one in group}


# ---- two workers at once


class Paused(Applier):
    """Stops in the middle of its transaction, before the marks are set."""

    reached: Event
    go_on: Event

    def apply(self, connection: sa.Connection, *arguments: Any, **options: Any) -> Pending:
        done = super().apply(connection, *arguments, **options)
        self.reached.set()
        assert self.go_on.wait(30)
        return done


@pytest.mark.parametrize("shards", [(None, None), (0, 0), (None, 0), (0, None)])
def test_a_worker_that_has_lost_the_partition_applies_nothing_twice(
    server: SqlLab, shards: tuple[int | None, int | None]
) -> None:
    """The new owner begins while the old one is in the middle of the same changes."""
    batch = orders(*[event(1)] * 3, key=None, types=TYPES)
    changes = batch.changes
    with server.handler() as old, server.handler() as new:
        # The table is there, and so are both workers' connections.
        for handler in (old, new):
            handler.handle(orders({"op": "truncate", "sql": "TRUNCATE orders"}, partition=9))
        server.make("shop.orders", "id int, n int")
        applier = old._applier
        assert applier is not None
        paused = Paused(applier._options, applier._naming, applier._marks, applier._writer)
        paused.reached, paused.go_on = Event(), Event()
        old._applier = paused
        # All changes of a table without a key are of shard 0.
        first = Thread(target=old.handle, args=(part(batch, changes, shard=shards[0]),), name="old")
        first.start()
        assert paused.reached.wait(30)
        second = Thread(target=new.handle, args=(part(batch, changes, shard=shards[1]),), name="new")
        second.start()
        second.join(0.3)
        assert second.is_alive(), "the new owner has to wait for the old one's transaction"
        paused.go_on.set()
        first.join(30)
        second.join(30)
    assert numbers(server) == [1, 1, 1]


def test_shards_of_a_table_go_side_by_side(server: SqlLab) -> None:
    batch = orders(*map(event, range(100)), types=TYPES)
    (one, ones), (two, twos), *_ = by_shard(batch).items()
    with server.handler() as handler:
        handler.handle(orders(event(1000), partition=5, types=TYPES))
        applier = handler._applier
        assert applier is not None
        # Their marks are there: making them is the one moment at which one may wait for the other.
        for shard, changes in ((one, ones), (two, twos)):
            handler.handle(part(batch, changes[:1], shard=shard))
        paused = Paused(applier._options, applier._naming, applier._marks, applier._writer)
        paused.reached, paused.go_on = Event(), Event()
        handler._applier = paused
        first = Thread(target=handler.handle, args=(part(batch, ones, shard=one),), name="one")
        first.start()
        assert paused.reached.wait(30)
        handler._applier = applier
        handler.handle(part(batch, twos, shard=two))
        assert {one["id"] for one in server.rows()} >= {id_of(change) for change in twos}
        paused.go_on.set()
        first.join(30)
    assert len(server.rows()) == len(ones) + len(twos) + 1
