"""OPTIMIZE and VACUUM: how often, and never while a statement of the source moves tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from integration.process import eventually
from spark_lake import Lake, MakeLake, change
from structlog.testing import capture_logs

from handlers.spark.delta.upkeep import UpkeepTimes
from handlers.spark.engine.keeper import Keeper
from handlers.spark.engine.table.waiting import DDLLock, ddl_lock_of
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import UpkeepOptions

HOUR = 3600.0


@contextmanager
def running(do: Callable[[], None]) -> Iterator[threading.Thread]:
    """In a thread that has ended after it."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            do()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive()
    assert not failed


# ---- how often


@pytest.fixture
def quiet(make_lake: MakeLake) -> Lake:
    """A lake of which nobody takes care but the test."""
    return make_lake(upkeep={"optimize_every": "0s", "vacuum_every": "0s"})


def vacuums(lake: Lake) -> int:
    rows = lake.sql("DESCRIBE HISTORY {t}").collect()
    return sum(row.operation == "VACUUM START" for row in rows)


@pytest.mark.soak
def test_a_worker_that_is_started_anew_every_day_still_vacuums(quiet: Lake) -> None:
    quiet.take(change(0, {"id": 0, "name": "a"}))
    sink, began = quiet.sink(), time.time()
    sink.merge()
    options = UpkeepOptions.model_validate({"optimize_every": "0s", "vacuum_every": "24h"})
    counts = []
    for hours in (0, 23, 25, 48):
        started = Keeper(options, lambda _: True)
        started._look_after(sink, began + hours * HOUR)
        counts.append(vacuums(quiet))
    assert counts == [0, 0, 1, 1]


@pytest.mark.soak
def test_what_another_worker_has_done_is_not_done_again(quiet: Lake) -> None:
    quiet.take(change(0, {"id": 0, "name": "a"}))
    sink, began = quiet.sink(), time.time()
    sink.merge()
    options = UpkeepOptions.model_validate({"optimize_every": "0s", "vacuum_every": "24h"})
    one, two = (Keeper(options, lambda _: True) for _ in range(2))
    for hours in (0, 25, 26):
        one._look_after(sink, began + hours * HOUR)
        two._look_after(sink, began + (hours + 0.5) * HOUR)
    assert vacuums(quiet) == 1


@pytest.mark.soak
def test_a_table_in_which_nothing_happens_is_not_looked_at_every_hour(
    quiet: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet.take(change(0, {"id": 0, "name": "a"}))
    sink, began = quiet.sink(), time.time()
    sink.merge()
    looks: list[str] = []
    monkeypatch.setattr(sink.merges, "optimize", lambda min_files: looks.append("optimize"))
    monkeypatch.setattr(sink.merges, "vacuum", lambda retention: looks.append("vacuum"))
    keeper = Keeper(UpkeepOptions.model_validate({"retention": "168h"}), lambda _: True)
    read = UpkeepTimes.last
    asked: list[str] = []
    monkeypatch.setattr(UpkeepTimes, "last", lambda self, what: asked.append(what) or read(self, what))  # type: ignore[func-returns-value]

    def hours(first: int, last: int) -> None:
        looks.clear()
        asked.clear()
        for hour in range(first, last):
            keeper._look_after(sink, began + hour * HOUR)

    hours(0, 12 * 24)
    assert looks.count("optimize") <= 3  # soon after the only commit
    assert 7 <= looks.count("vacuum") <= 9  # until what it left behind was old enough to go
    hours(12 * 24, 40 * 24)
    assert (looks, asked) == ([], [])
    monkeypatch.setattr(sink._log, "_clock", lambda: began + 40 * 24 * HOUR)
    quiet.take(change(1, {"id": 1, "name": "a"}))
    sink.merge()
    hours(40 * 24, 60 * 24)
    assert 1 <= looks.count("optimize") <= 3
    assert 7 <= looks.count("vacuum") <= 9


def test_a_table_is_tidied_when_something_was_merged_and_then_left_alone(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(merge={"keep": "0s"}, upkeep={"optimize_every": "0s", "vacuum_every": "0s"})
    lake.take(change(0, {"id": 0, "name": "a"}))
    lake.take(change(1, {"id": 1, "name": "b"}))
    sink = lake.sink()
    keeper = Keeper(UpkeepOptions(), lambda _: True)
    own = lake.handler._open._keeper  # type: ignore[union-attr]
    own.thread.end()
    assert own.thread.ended(60)  # nobody else tidies
    monkeypatch.setattr(lake.handler._open, "_keeper", keeper)
    tidied: list[float] = []
    tidy = sink.merges.tidy
    monkeypatch.setattr(sink.merges, "tidy", lambda now: (tidied.append(now), tidy(now)))

    def turns() -> int:
        tidied.clear()
        for _ in range(10):
            keeper.turn(time.time())
        return len(tidied)

    keeper.look_after(sink)
    assert turns() == 1, "nothing was merged yet"
    sink.merge()
    assert turns() >= 1
    assert [each.number for each in sink._log.segments] == [2]
    assert turns() == 0
    lake.take(change(2, {"id": 2, "name": "c"}))
    assert turns() == 0
    sink.merge()
    assert turns() >= 1
    assert [each.number for each in sink._log.segments] == [3]


def test_a_table_is_looked_after_when_it_is_due_as_long_as_it_is_served(
    quiet: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet.take(change(0, {"id": 0, "name": "a"}))
    sink, began = quiet.sink(), time.time()
    sink.merge()
    served = {sink}
    keeper = Keeper(UpkeepOptions(), served.__contains__)
    looks: list[float] = []
    look_after = keeper._look_after
    monkeypatch.setattr(keeper, "_look_after", lambda sink, now: (looks.append(now), look_after(sink, now)))

    def turns(first: int, last: int) -> int:
        """In minutes; one each."""
        looks.clear()
        for minute in range(first, last):
            keeper.turn(began + minute * 60)
        return len(looks)

    keeper.look_after(sink)
    assert turns(0, 61) == 1
    # After an hour, at the next minute.
    assert turns(61, 60 * 24) in (22, 23, 24)
    served.clear()
    assert turns(60 * 24, 60 * 48) == 0
    served.add(sink)
    keeper.look_after(sink)
    assert turns(60 * 48, 60 * 50) >= 1


def test_a_table_into_which_nothing_was_merged_yet_is_first_looked_at_within_a_day(
    quiet: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them would ask a store for their times all the first hour."""
    monkeypatch.setattr("random.random", lambda: 0.5)
    quiet.take(change(0, {"id": 0, "name": "a"}))
    sink, began = quiet.sink(), time.time()
    keeper = Keeper(UpkeepOptions(), lambda _: True)
    looks: list[float] = []
    monkeypatch.setattr(keeper, "_look_after", lambda sink, now: looks.append(now))
    keeper.look_after(sink)
    for hour in range(12):
        keeper.turn(began + hour * HOUR)
    assert not looks
    keeper.turn(began + 12.1 * HOUR)
    assert len(looks) == 1
    sink.merge()
    again = Keeper(UpkeepOptions(), lambda _: True)
    monkeypatch.setattr(again, "_look_after", lambda sink, now: looks.append(now))
    again.look_after(sink)
    again.turn(began)
    again.turn(began + 0.6 * HOUR)
    assert len(looks) == 2


def test_a_worker_that_is_started_anew_leaves_tables_alone_in_which_nothing_has_happened_since(
    quiet: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet.take(change(0, {"id": 0, "name": "a"}))
    sink, began = quiet.sink(), time.time()
    sink.merge()
    optimized: list[float] = []
    monkeypatch.setattr(sink.merges, "optimize", optimized.append)
    options = UpkeepOptions.model_validate({"vacuum_every": "0s"})
    for hours in (0, 2, 4, 6, 8):
        Keeper(options, lambda _: True)._look_after(sink, began + hours * HOUR)
    assert len(optimized) == 1
    quiet.take(change(1, {"id": 1, "name": "b"}))
    Keeper(options, lambda _: True)._look_after(sink, began + 10 * HOUR)
    assert len(optimized) == 2


def test_times_are_kept_beside_the_log_and_do_not_disturb_it(quiet: Lake) -> None:
    quiet.take(change(0, {"id": 0, "name": "a"}))
    folder = quiet.folder / "lake/_binlane/shop/orders/pending"
    times = UpkeepTimes(LocalFiles(), str(folder))
    assert times.last("vacuum") is None
    for moment in (1_790_000_000.7, 1_790_000_500.0):
        times.remember("vacuum", moment)
    times.remember("optimize", 1_790_000_100.0)
    assert (times.last("vacuum"), times.last("optimize")) == (1_790_000_500, 1_790_000_100)
    assert len(list((folder / "_upkeep").iterdir())) == 2
    quiet.crash()
    quiet.take(change(1, {"id": 1, "name": "a"}))
    assert quiet.view() == [(0, "a"), (1, "a")]


@pytest.mark.soak
def test_without_a_place_for_times_they_count_from_the_start(quiet: Lake) -> None:
    quiet.take(change(0, {"id": 0, "name": "a"}))
    sink, began = quiet.sink(), time.time()
    sink.merge()
    Path(sink.log_folder, "_upkeep").write_text("a file, so that nobody can make the folder")
    keeper = Keeper(UpkeepOptions.model_validate({"optimize_every": "0s"}), lambda _: True)
    with capture_logs() as logged:
        for hours in (0, 23, 24):
            keeper._look_after(sink, began + hours * HOUR)
    assert vacuums(quiet) == 1
    assert {entry["event"] for entry in logged if entry["log_level"] == "warning"} == {"spark_upkeep_failed"}


# ---- and the source's statements


def test_a_statement_waits_for_a_vacuum_and_says_so(quiet: Lake) -> None:
    quiet.take(change(0, {"id": 0, "name": "a"}))
    rename = change(1, None, None, op="ddl", sql="RENAME TABLE orders TO older")
    lock = ddl_lock_of(str(quiet.folder / "lake/_binlane"))
    waits = {"event": "spark_ddl_waits", "until": "VACUUM of shop.items", "table": "shop.orders"}
    with capture_logs() as logged, ExitStack() as vacuum:
        vacuum.enter_context(lock.upkeep("VACUUM of shop.items"))
        with running(lambda: quiet.take(rename)):
            eventually(lambda: [each for each in logged if waits.items() <= each.items()], within=60)
            assert quiet.rows() == [(0, "a")]
            vacuum.close()
    assert sum(each["event"] == "spark_ddl_waits" for each in logged) == 1
    assert quiet.rows(path="lake/shop/older") == [(0, "a")]


@pytest.mark.soak
def test_optimize_and_vacuum_wait_for_a_statement(quiet: Lake) -> None:
    for offset in range(2):
        quiet.take(change(offset, {"id": offset, "name": "a"}))
        quiet.sink().merge()
    sink = quiet.sink()
    lock = ddl_lock_of(str(quiet.folder / "lake/_binlane"))
    with ExitStack() as statement:
        statement.enter_context(lock.statement("shop.items"))
        merges = sink.merges
        with running(lambda: merges.optimize(1)), running(lambda: merges.vacuum(168 * HOUR)) as last:
            last.join(0.5)
            assert vacuums(quiet) == 0
            sink.merge()  # the table is free meanwhile
            statement.close()
    assert vacuums(quiet) == 1


def test_statements_do_not_wait_for_each_other_nor_behind_a_vacuum_that_waits() -> None:
    """One settles the table of the other, which holds that table while it would wait."""
    lock = DDLLock()
    with ExitStack() as first:
        first.enter_context(lock.statement("shop.a"))
        vacuumed = threading.Event()

        def vacuum() -> None:
            with lock.upkeep("VACUUM of shop.c"):
                vacuumed.set()

        with running(vacuum):
            with lock.statement("shop.b"):
                assert not vacuumed.wait(0.1)
            first.close()
    assert vacuumed.is_set()
