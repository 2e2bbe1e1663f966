"""Statements in the log: a lane waits for none, and each is followed once in its place, whatever is cut
short."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from integration.process import eventually
from spark_lake import TYPES, Lake, MakeLake, Rows, change
from test_spark_handovers import ddl, other_worker, take

from handlers import Change
from handlers.spark.engine.table.failures import SparkFailure
from handlers.spark.engine.table.following import Following
from handlers.spark.engine.table.merges import Merges
from handlers.spark.engine.table.work import TableWork
from handlers.spark.log.beside import ToldHeld
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.local import LocalFiles

WITH_STOCK = {**TYPES, "stock": "int"}


@pytest.fixture(params=["auto", pytest.param("spark", marks=pytest.mark.soak)])
def lake(make_lake: MakeLake, told_to_merge: None, request: pytest.FixtureRequest) -> Lake:
    """It merges when it is told to."""
    return make_lake(merge={"engine": request.param})


def row(offset: int, id: int, name: str, **more: Any) -> Change:
    return change(offset, {"id": id, "name": name, **more}, WITH_STOCK if more else TYPES)


def truncate(offset: int) -> Change:
    return change(offset, None, None, op="truncate", sql="TRUNCATE orders")


STREAM = (
    row(0, 1, "lost"),
    row(1, 2, "lost"),
    truncate(2),
    row(3, 1, "a"),
    row(4, 3, "c"),
    ddl(5, "ALTER TABLE orders ADD stock int NOT NULL DEFAULT 7"),
    row(6, 3, "d", stock=1),
    row(7, 4, "e", stock=2),
)
RESULT: Rows = [(1, "a", 7), (3, "d", 1), (4, "e", 2)]


class Cut(RuntimeError):
    """As if the worker died here."""


@contextmanager
def without_spark(lake: Lake) -> Iterator[None]:
    """Whoever asks it meets a Spark that is not up."""

    def away(*_: Any) -> NoReturn:
        raise Cut("Spark is not up")

    spark = lake.handler._open.world.spark  # type: ignore[union-attr]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(spark), "fresh", away)
        patch.setattr(type(spark), "renewed", away)
        yield


def take_all(lake: Lake) -> None:
    for each in STREAM:
        lake.take(each)


def operations(lake: Lake, *wanted: str) -> list[str]:
    """What was done to the table, in order."""
    found = [row.operation for row in lake.sql("DESCRIBE HISTORY {t}").collect()]
    return [each for each in reversed(found) if each in wanted]


@pytest.mark.parametrize("mode", ["replica", pytest.param("history", marks=pytest.mark.soak)])
@pytest.mark.usefixtures("told_to_merge")
def test_statements_and_what_comes_behind_them_are_durable_without_spark(
    make_lake: MakeLake, mode: str
) -> None:
    lake = make_lake(mode=mode)
    lake.take(STREAM[0])
    lake.sink().merge()
    last = 5 if mode == "history" else 8  # a history may have had the column before
    with without_spark(lake):
        for each in STREAM[1:last]:
            lake.take(each)
    assert lake.rows("id, name") == [(1, "lost")]
    lake.crash()
    with without_spark(lake):
        for each in STREAM[:last]:
            lake.take(each)
    assert lake.status()["waiting_rows"] == {"replica": 7, "history": 4}[mode], "a statement counts as one"
    for each in STREAM[last:]:
        lake.take(each)
    lake.sink().merge()
    if mode == "replica":
        assert lake.rows() == RESULT
    else:
        kept = lake.spark.read.format("delta").load(str(lake.folder / "lake/shop/orders")).where("_current")
        assert sorted(map(tuple, kept.select("id", "name", "stock").collect())) == RESULT


@pytest.mark.parametrize(
    ("of", "step"), [(Following, "follow_entry"), pytest.param(TableWork, "fit", marks=pytest.mark.soak)]
)
def test_a_statement_that_comes_while_another_is_followed_waits_for_none(
    lake: Lake, of: type, step: str
) -> None:
    lake.take(STREAM[0])
    lake.sink().merge()
    lake.take(STREAM[5])
    whole = getattr(of, step)
    with pytest.MonkeyPatch.context() as patch:

        def meanwhile(*args: Any, **more: Any) -> Any:
            patch.undo()
            with without_spark(lake), pytest.MonkeyPatch.context() as no_merge:
                no_merge.setattr(Merges, "merge", raising)
                lake.take(ddl(6, "ALTER TABLE orders ADD more int"))
                lake.take(
                    change(7, {"id": 2, "name": "b", "stock": 2, "more": 3}, {**WITH_STOCK, "more": "int"})
                )
            return whole(*args, **more)

        patch.setattr(of, step, meanwhile)
        lake.sink().merge()
    assert lake.rows() == [(1, "lost", 7)]
    lake.sink().merge()
    assert lake.rows() == [(1, "lost", 7, None), (2, "b", 2, 3)]


def raising(*_: Any, **__: Any) -> NoReturn:
    raise Cut("cut here")


def after(whole: Any) -> Any:
    def cut(*args: Any, **more: Any) -> NoReturn:
        whole(*args, **more)
        raise Cut("cut here")

    return cut


POINTS = {
    "before a statement": (Following, "follow_entry", raising),
    "behind a statement": (Following, "follow_entry", after(Following.follow_entry)),
    "before that is told": (ToldHeld, "tell_followed", raising),
    "when that is told": (ToldHeld, "tell_followed", after(ToldHeld.tell_followed)),
    "before it is fitted": (TableWork, "fit", raising),
    "before a commit": (TableWork, "apply", raising),
    "behind a commit": (TableWork, "apply", after(TableWork.apply)),
    "before the last segments go": (Merges, "remove", raising),
    "when they are gone": (Merges, "remove", after(Merges.remove)),
    "before views read on": (SegmentLog, "show", raising),
    "when views read on": (SegmentLog, "show", after(SegmentLog.show)),
    "within a removal": (LocalFiles, "delete", raising),
}


def is_cut(lake: Lake) -> bool:
    """Bring all in; whether that failed."""
    try:
        lake.sink().merge()
        lake.take(row(8, 5, "f", stock=3))
        lake.sink().merge()
    except (Cut, SparkFailure):
        return True
    return False


# In each run, where something is done already: of a commit, of a statement, before views are told. The other
# places in the soak.
IN_SHORT = ("behind a statement",)


@pytest.mark.parametrize(
    "point",
    [pytest.param(each, marks=() if each.startswith(IN_SHORT) else pytest.mark.soak) for each in POINTS],
)
def test_each_statement_is_followed_once_wherever_a_worker_dies(lake: Lake, point: str) -> None:
    target, name, cut = POINTS[point]
    lake.take(STREAM[0])
    lake.sink().merge()
    take_all(lake)
    cuts = []
    for _ in range(3):  # each time one step further
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, cut)
            cuts.append(is_cut(lake))
        lake.crash()
        take_all(lake)
    assert cuts[0]
    lake.take(row(8, 5, "f", stock=3))
    whole = [*RESULT, (5, "f", 3)]
    lake.sink().merge()
    assert lake.rows() == lake.view() == whole
    assert operations(lake, "DELETE", "UPDATE", "ADD COLUMNS") == ["DELETE", "ADD COLUMNS", "UPDATE"]
    lake.take(row(9, 4, "g", stock=4))
    lake.crash()
    assert lake.view() == [(1, "a", 7), (3, "d", 1), (4, "g", 4), (5, "f", 3)]


@pytest.mark.soak
def test_of_two_writers_of_a_statements_number_one_wins_and_the_other_goes_on_behind_it(lake: Lake) -> None:
    other = other_worker(lake)
    lake.take(STREAM[0])
    take(other, STREAM[1])
    take(other, truncate(2))
    with without_spark(lake):
        lake.take(STREAM[1], truncate(2), row(3, 1, "a"))  # the same records, to their next owner
        take(other, row(3, 1, "a"), row(4, 3, "c"))
        lake.take(row(4, 3, "c"))
    lake.sink().merge()
    take(other, row(5, 4, "e"))
    other.merge()
    lake.take(row(6, 5, "f"))
    assert lake.view() == [(1, "a"), (3, "c"), (4, "e"), (5, "f")]
    lake.sink().merge()
    assert lake.rows() == [(1, "a"), (3, "c"), (4, "e"), (5, "f")]
    assert operations(lake, "DELETE") == ["DELETE"]


@pytest.mark.soak
def test_two_workers_that_follow_a_statement_at_once_do_it_once(lake: Lake) -> None:
    """One of them has looked what is done before the other did it all, and brought in what is behind it."""
    lake.take(STREAM[0])
    lake.take(truncate(1))
    lake.take(ddl(2, "ALTER TABLE orders ADD stock int DEFAULT 7"))
    statements = [each.statement for each in lake.sink()._log.segments if each.statement is not None]
    lake.take(row(3, 1, "a", stock=5))
    lake.sink().merge()
    assert lake.rows() == [(1, "a", 5)]
    late = other_worker(lake)._work
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("handlers.spark.ddl.target.notes_in_files", lambda *_: [])
        for statement in statements:
            late.following.follow_entry(statement)
    assert lake.rows() == [(1, "a", 5)]


@pytest.mark.soak
def test_workers_merge_one_log_side_by_side(lake: Lake) -> None:
    take_all(lake)
    others = [other_worker(lake) for _ in range(2)]
    for other in others:
        other.load()
    failed: list[Exception] = []

    def merge(sink: Any) -> None:
        for _ in range(8):
            try:
                sink.merge()
            except Exception as error:
                failed.append(error)
            else:
                return

    threads = [threading.Thread(target=merge, args=(each,)) for each in (*others, lake.sink())]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(failed) < 8, failed
    lake.sink().merge()
    assert lake.rows() == RESULT
    assert operations(lake, "DELETE", "ADD COLUMNS") == ["DELETE", "ADD COLUMNS"]


@pytest.mark.soak
def test_what_only_spark_can_judge_behind_a_statement_waits_for_it(lake: Lake) -> None:
    lake.take(row(0, 1, "a"))
    lake.take(truncate(1))
    wide = {**TYPES, "extra": "int"}
    lake.take(change(2, {"id": 2, "name": "b", "extra": 1}, wide))  # no statement told that column
    assert lake.view() == [(2, "b", 1)]
    lake.take(truncate(3))
    lake.take(change(4, {"id": 3, "name": "c"}, wide, op="update"))  # does not carry it
    lake.take(ddl(5, "RENAME TABLE orders TO older"))
    assert not (lake.folder / "lake/shop/orders").exists()
    assert lake.rows(path="lake/shop/older") == [(3, "c", None)]
    lake.take(row(6, 9, "z"))
    lake.sink().merge()
    assert lake.rows() == [(9, "z")]


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.soak
def test_no_more_than_may_wait_is_put_behind_a_statement(make_lake: MakeLake) -> None:
    lake = make_lake(merge={"max_waiting": "1KiB"})
    lake.take(row(0, 1, "lost"))
    lake.take(truncate(1))
    lake.take(row(2, 2, "b"))
    lake.take(row(3, 3, "c"))
    assert lake.status()["waiting_bytes"] < 4096
    assert lake.rows() in ([], [(2, "b")])
    lake.sink().merge()
    assert lake.rows() == [(2, "b"), (3, "c")]


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.soak
def test_what_waits_behind_a_statement_is_found_by_the_next_worker_though_no_batch_comes(
    make_lake: MakeLake,
) -> None:
    lake = make_lake(merge={"max_age": "1h"})
    for each in STREAM[:6]:
        lake.take(each)
    lake.crash()
    lake.handler._open._search.round()  # type: ignore[union-attr]
    assert lake.status()["waiting_rows"] == 6
    lake.sink().merge()
    assert lake.rows() == [(1, "a", 7), (3, "c", 7)]


def test_a_statement_is_followed_at_once_in_the_background_and_views_read_on(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.take(row(0, 1, "lost"))
    lake.take(truncate(1))
    lake.take(row(2, 2, "b"))
    eventually(lambda: not lake.status()["views_wait"], within=300, what="it is followed")
    assert lake.view() == [(2, "b")]
    lake.take(row(3, 3, "c"))
    assert lake.view() == [(2, "b"), (3, "c")]
