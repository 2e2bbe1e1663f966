"""When tables are merged, and what a merge that fails does to the others. No Spark is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from integration.process import eventually

from handlers import StopWorker
from handlers.spark.engine import merge_scheduler
from handlers.spark.engine.merge_scheduler import Merger
from handlers.spark.engine.table.waiting import Waiting
from handlers.spark.options import MergeOptions
from handlers.spark.runtime.start import SparkStarts


class Table:
    """One to be merged."""

    def __init__(
        self, name: str, log: list[str], *, fails: Exception | None = None, times: int | None = None
    ) -> None:
        """`times`: so many merges fail; None: each."""
        self.name = name
        self.waiting = Waiting(0, 0, 0, None)
        self.faults = self.replaced = 0
        self.fault: str | None = None
        self.fails = fails
        self.times = times
        self.gate: threading.Event | None = None
        self._log = log

    def put(self, rows: int = 1, age: float = 0.0) -> Table:
        self.waiting = Waiting(1, rows, rows, time.time() - age)
        return self

    def merge(self) -> None:
        self._log.append(self.name)
        if self.gate is not None:
            self.gate.wait(30)
        if self.fails is not None and (self.times is None or self.faults < self.times):
            self.faults += 1
            raise self.fails
        self.faults = self.replaced = 0
        self.waiting = Waiting(0, 0, 0, None)


class Machine:
    def __init__(self) -> None:
        self.merged: list[str] = []
        self.merger: Merger | None = None

    def start(self, *, threads: int = 1, **options: Any) -> Merger:
        self.merger = Merger(MergeOptions.model_validate(options), threads=threads)
        self.merger.start()
        return self.merger

    def table(self, name: str, **options: Any) -> Table:
        return Table(name, self.merged, **options)


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    if machine.merger is not None:
        machine.merger.close()


def test_a_table_is_merged_when_its_oldest_change_is_of_age(machine: Machine) -> None:
    merger = machine.start(max_age="1h")
    merger.offer(machine.table("young").put(age=60))
    merger.offer(machine.table("old").put(age=3600))
    eventually(lambda: machine.merged == ["old"], within=60)


def test_a_table_is_merged_early_when_many_rows_wait(machine: Machine) -> None:
    merger = machine.start(max_age="1h", max_rows=100, at_close="0s")
    table = machine.table("full")
    for rows in (1, 99, 100):
        assert machine.merged == []
        merger.offer(table.put(rows))
    eventually(lambda: machine.merged == ["full"], within=60)


def test_the_oldest_goes_first_and_a_table_is_never_merged_twice_at_once(machine: Machine) -> None:
    merger = Merger(MergeOptions.model_validate({"max_age": "1s"}), threads=2)
    machine.merger = merger
    gate = threading.Event()
    for name, age in (("b", 20), ("a", 30), ("c", 10)):
        table = machine.table(name).put(age=age)
        table.gate = gate
        merger.offer(table)
        merger.offer(table)
    merger.start()
    eventually(lambda: len(machine.merged) == 2, within=60)
    assert sorted(machine.merged) == ["a", "b"]
    gate.set()
    eventually(lambda: len(machine.merged) == 3, within=60)
    merger.close()
    assert sorted(machine.merged) == ["a", "b", "c"]


def test_a_merge_that_fails_is_tried_again_later_and_the_others_go_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handlers.spark.engine.merge_scheduler._FIRST_RETRY", 1.0)
    machine.merger = merger = Merger(
        MergeOptions.model_validate({"max_age": "0s", "at_close": "0s"}), threads=1
    )
    bad = machine.table("bad", fails=RuntimeError("constraint"), times=2).put(age=10)
    merger.offer(bad)
    merger.offer(machine.table("good").put())
    merger.start()
    eventually(lambda: bad.waiting.since is None, within=60)
    assert machine.merged == ["bad", "good", "bad", "bad"]


def test_a_merger_that_closes_goes_on_with_what_waits_but_no_longer_than_told(machine: Machine) -> None:
    merger = machine.start(max_age="1h", at_close="30s")
    for number in range(3):
        merger.offer(machine.table(f"t{number}").put())
    merger.close()
    assert sorted(machine.merged) == ["t0", "t1", "t2"]

    machine.merged.clear()
    merger = machine.start(max_age="1h", at_close="500ms")
    merger.offer(machine.table("bad", fails=RuntimeError("constraint")).put())
    began = time.monotonic()
    merger.close()
    assert time.monotonic() - began < 10
    assert set(machine.merged) == {"bad"}

    machine.merged.clear()
    merger = machine.start(max_age="1h", at_close="0s")
    merger.offer(machine.table("t").put())
    merger.close()
    assert machine.merged == []

    # Its caller waited for Spark for as long as that already.
    merger = machine.start(max_age="1h", at_close="1h")
    merger.offer(machine.table("t").put())
    merger.close(3600.0)
    assert machine.merged == []


def test_a_spark_that_is_gone_is_not_asked_again_and_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handlers.spark.engine.merge_scheduler._FIRST_RETRY", 0.05)
    merger = machine.start(max_age="0s", at_close="0s")
    merger.offer(machine.table("t", fails=StopWorker("Spark is gone")).put())
    eventually(lambda: machine.merged == ["t"], within=60)
    time.sleep(0.3)  # longer than the first delay after a failure
    assert machine.merged == ["t"]


@pytest.mark.parametrize("max_rows", [100, 1])
def test_a_clock_that_is_set_back_delays_no_merge_beyond_max_age(machine: Machine, max_rows: int) -> None:
    merger = machine.start(max_age="200ms", max_rows=max_rows, at_close="0s")
    merger.offer(machine.table("written an hour from now").put(age=-3600))
    eventually(lambda: machine.merged == ["written an hour from now"], within=60)


def test_a_clock_that_is_set_back_delays_no_retry(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handlers.spark.engine.merge_scheduler._FIRST_RETRY", 1.0)
    merger = machine.start(max_age="0s", at_close="0s")
    bad = machine.table("bad", fails=RuntimeError("constraint"), times=1).put()
    merger.offer(bad)
    eventually(lambda: bad.faults == 1, within=60, every=0.01)
    real = time.time
    monkeypatch.setattr("handlers.spark.engine.merge_scheduler.time.time", lambda: real() - 3600)
    eventually(lambda: machine.merged == ["bad", "bad"], within=60)


def test_a_clock_that_is_set_forward_is_noticed_while_nothing_is_offered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handlers.spark.engine.merge_scheduler._LONGEST_WAIT", 0.1)
    merger = machine.start(max_age="1h", at_close="0s")
    merger.offer(machine.table("young").put())
    time.sleep(0.2)
    assert machine.merged == []
    real = time.time
    monkeypatch.setattr("handlers.spark.engine.merge_scheduler.time.time", lambda: real() + 3600)
    eventually(lambda: machine.merged == ["young"], within=60)


def test_a_table_that_is_due_while_another_is_merged_does_not_wait_for_a_later_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both threads wait for the same table; the one that does not get it has to look what is next."""
    monkeypatch.setattr("handlers.spark.engine.merge_scheduler._LONGEST_WAIT", 3600.0)
    merger = machine.start(threads=2, max_age="1h", at_close="0s")
    gate = threading.Event()
    first, second = machine.table("first").put(age=3599.0), machine.table("second").put(age=3598.5)
    first.gate = gate
    for table in (machine.table("much later").put(), first, second):  # of the last nobody is told
        eventually(lambda: len(merger._changed._waiters) == 2, within=20)  # type: ignore[attr-defined]
        merger.offer(table)
    try:
        eventually(lambda: "second" in machine.merged, within=10)
    finally:
        gate.set()


def test_attempts_while_spark_starts_are_no_merges(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_scheduler, "_SPARK_STARTS", 0.01)
    merger = machine.start(max_age="0s")
    table = machine.table("t", fails=SparkStarts("Spark is starting"), times=3)
    merger.offer(table.put())
    eventually(lambda: machine.merged == ["t"] * 4 and not merger._queue._running, within=60)
    assert merger._queue._took[table][0] == 0.0  # type: ignore[index]
