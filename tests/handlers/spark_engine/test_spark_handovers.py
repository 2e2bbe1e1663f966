"""A table that passes from worker to worker, and work that is cut short: each change still counts once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from spark_lake import TYPES, Lake, MakeLake, change
from spark_sessions import SHARED

from handlers import Batch, Change, HandlerContext, TargetUnavailable
from handlers.mysql.ddl import TableName
from handlers.spark import SparkHandler
from handlers.spark.engine import tables
from handlers.spark.engine.table.failures import SparkFailure
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.engine.table.work import TableWork
from handlers.spark.engine.tables import Tables
from handlers.spark.log.segments import SegmentLog


def row(offset: int) -> Change:
    return change(offset, {"id": offset, "name": "a"})


def ddl(offset: int, sql: str) -> Change:
    return change(offset, None, None, op="ddl", sql=sql)


def other_worker(lake: Lake) -> TableSink:
    """Shop.orders in a worker that knows nothing of the lake's."""
    world = lake.handler._open.world  # type: ignore[union-attr]
    work = TableWork("shop", "orders", world)
    log = SegmentLog(world.files, work.ref.log_folder)
    nothing = lambda *_: None  # noqa: E731 (it merges when it is told to)
    return TableSink(
        "shop", "orders", work, log, sign=nothing, offer=nothing, look_after=nothing, forget=nothing
    )


def take(sink: TableSink, *changes: Change) -> None:
    sink.take(Batch("shop.orders", changes, database="shop", name="orders"))


def segment(lake: Lake, number: int, table: str = "orders") -> Path:
    return lake.folder / f"lake/_binlane/shop/{table}/pending/{number:020d}.parquet"


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(b"")
    yield
    path.write_bytes(whole)


def test_a_log_that_could_not_be_read_whole_is_read_again(lake: Lake) -> None:
    lake.take(row(0))
    other = other_worker(lake)
    take(other, row(1))
    take(other, row(2))
    # The number 2 is taken: it looks what the log holds, and how far that is applied it knows already.
    with (
        damaged(segment(lake, 2)),
        pytest.raises(TargetUnavailable, match=r"^shop\.orders, cdc\[0\] offset 1 on: .*not a whole"),
    ):
        lake.take(row(1), row(2), row(3))
    lake.take(row(1), row(2), row(3))
    lake.sink().merge()
    assert lake.rows("id") == [(0,), (1,), (2,), (3,)]


def test_what_another_worker_has_merged_and_removed_does_not_wait_any_more(lake: Lake) -> None:
    for offset in range(3):
        lake.take(row(offset))
    sink, other = lake.sink(), other_worker(lake)
    take(other, row(3))
    other.merge()
    other.merges.tidy(time.monotonic() + 3600)
    assert segment(lake, 3).stat().st_mtime == 0
    other.merges.tidy(time.monotonic() + 7200)
    assert not segment(lake, 3).exists()
    sink.merge()
    assert (sink.faults, sink.waiting.rows) == (0, 0)
    lake.take(row(3), row(4))  # the table has come back
    sink.merge()
    assert lake.rows("id") == [(0,), (1,), (2,), (3,), (4,)]


@pytest.mark.soak
def test_what_another_worker_puts_and_merges_between_two_looks_is_no_log_that_was_lost(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.take(row(0))
    lake.sink().merge()
    sink, other = other_worker(lake), other_worker(lake)
    load = sink._log.load

    def looked_at_just_before() -> None:
        load()
        monkeypatch.undo()
        take(other, row(1))
        other.merge()

    monkeypatch.setattr(sink._log, "load", looked_at_just_before)
    take(sink, row(1), row(2))
    sink.merge()
    assert lake.rows("id") == [(0,), (1,), (2,)]


def test_what_waited_for_a_table_is_not_brought_in_when_another_worker_has_moved_it(lake: Lake) -> None:
    lake.take(row(0))
    lake.take(row(1))
    take(other_worker(lake), ddl(2, "RENAME TABLE orders TO older"))
    lake.sink().merge()
    assert not (lake.folder / "lake/shop/orders").exists()
    assert lake.rows("id", path="lake/shop/older") == [(0,), (1,)]


def test_a_segment_that_is_lost_is_told_with_the_way_out(lake: Lake) -> None:
    lake.take(row(0))
    segment(lake, 1).unlink()
    sink = lake.sink()
    with pytest.raises(SparkFailure, match=r"^shop\.orders, .*0001\.parquet is missing.*: restore it"):
        sink.merge()
    assert sink.waiting.rows == 1
    lake.take(row(1))  # it waits for the lost one
    lake.crash()


def test_segments_that_a_killed_worker_did_not_remove_go_before_their_table_moves(lake: Lake) -> None:
    """After that nobody could tell that they are merged."""
    lake.take(row(0))
    sink = lake.sink()
    sink.merge()
    # All that the worker did of settling the table when it was killed.
    sink._log.append(sink._work.no_rows(sink.end.shape), sink._log.marks, key=("id",))  # type: ignore[arg-type]
    lake.crash()
    lake.take(ddl(1, "RENAME TABLE orders TO older"), table="shop.items")
    lake.crash()
    lake.take(row(2))
    lake.sink().merge()
    assert lake.rows("id") == [(2,)]
    assert lake.rows("id", path="lake/shop/older") == [(0,)]


@pytest.mark.soak
def test_a_table_is_looked_at_anew_though_remembering_the_statement_failed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.take(row(0))
    lake.take(ddl(1, "CREATE TABLE items (id INT PRIMARY KEY)"), table="shop.items")
    lake.sink().merge()
    following = lake.sink("items")._work.following
    follow, last = following.follow, segment(lake, 2, "items")  # with which the log's end was claimed

    def followed(*args: Any) -> Any:
        result = follow(*args)
        last.unlink()
        last.mkdir()  # it cannot be removed, which is tried when the next one is there
        return result

    monkeypatch.setattr(following, "follow", followed)
    statement = ddl(2, "ALTER TABLE orders DROP COLUMN name")
    with pytest.raises(SparkFailure, match=r"^shop\.items, cdc\[0\] offset 2 on: cannot remove"):
        lake.take(statement, table="shop.items")
    lake.take(statement, table="shop.items")
    last.rmdir()
    lake.take(change(3, {"id": 3, "name": "b"}, TYPES))
    lake.sink().merge()
    assert lake.rows("id, name") == [(0, None), (3, "b")]


def thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_table_whose_partitions_have_left_is_left_to_their_next_owner(lake: Lake) -> None:
    lake.take(row(0))
    lake.partitions = {("cdc", 1)}
    lake.handler.release([("cdc", 0)])
    sink = other_worker(lake)
    assert lake.status() == {}
    take(sink, row(1))
    lake.handler._open._search.round()  # type: ignore[union-attr]
    assert lake.status() == {}, "its log is fresh, and of no partition of this worker"
    sink.merge()
    lake.partitions = {("cdc", 0)}
    lake.handler._open._search.round()  # type: ignore[union-attr]
    assert lake.status()["waiting_rows"] == 0
    lake.take(row(1), row(2))
    lake.merge()
    assert lake.rows("id") == [(0,), (1,), (2,)]


def test_a_table_with_partitions_that_stay_is_served_on(lake: Lake) -> None:
    lake.take(row(0))
    lake.handler.release([("cdc", 7)])
    assert lake.status()["waiting_rows"] == 1


def test_a_log_that_nobody_wrote_for_a_while_is_merged_by_whoever_finds_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.take(row(0))
    lake.partitions = set()
    lake.handler.release([("cdc", 0)])
    search = lake.handler._open._search  # type: ignore[union-attr]
    search.round()
    assert lake.status() == {}
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 700)
    search.round()
    assert lake.status()["waiting_rows"] == 1


def test_a_command_that_is_no_worker_searches_for_nothing(lake: Lake, tmp_path: Path) -> None:
    assert "spark-search" in thread_names()
    lake.close()
    handler = SparkHandler(**lake.options)
    handler.open(HandlerContext(worker="replay", handler="spark", folder=tmp_path, spark=SHARED))
    assert "spark-search" not in thread_names()
    handler.close()
    lake.open()


@pytest.mark.usefixtures("told_to_merge")
def test_a_row_that_comes_while_its_table_leaves_is_in_the_next_table(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another lane brings it. The statement's record is of another table."""
    leaving, rows = Tables._leaving, [row(2)]

    def leaving_late(tables: Tables, name: TableName) -> None:
        if name.table == "other" and rows:
            lake.take(rows.pop(), table="shop.other")
        leaving(tables, name)

    monkeypatch.setattr(Tables, "_leaving", leaving_late)
    lake = make_lake()
    for table in ("orders", "other"):
        lake.take(row(0), table=f"shop.{table}")
        lake.sink(table).merge()
    lake.take(ddl(1, "DROP TABLE orders, other"))
    lake.sink("other").merge()
    assert lake.rows("id", path="lake/shop/other") == [(2,)]
    assert not Path(lake.folder, "lake/shop/orders").exists()


def test_a_worker_that_stood_still_adds_no_column_that_another_has_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it has no values when the source renames it back."""
    late, other = (Lake(tmp_path, merge={"at_close": "0s"}) for _ in range(2))
    try:
        late.take(change(1, {"id": 1, "name": "a"}))
        late.sink().merge()
        added = change(2, {"id": 2, "name": "b", "n": 1}, {"id": "int", "name": "varchar(20)", "n": "int"})
        with monkeypatch.context() as process:
            process.setattr(tables, "_serving", {})  # as in another process
            other.take(added)
            other.take(ddl(3, "ALTER TABLE orders RENAME COLUMN name TO label"))
            other.sink().merge()
        late.take(added)
        assert list(other.types()) == ["id", "label", "n"]
    finally:
        late.close()
        other.close()
