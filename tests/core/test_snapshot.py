"""What the lanes and thousands of tables hold, told without keeping anybody waiting."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from building import TOPIC, assignment, configuration
from confluent_kafka import Message
from prometheus_client import generate_latest
from row_building import rows
from table_stage import TableStage

from worker.fetching.routing import Router
from worker.lanes.snapshot import snapshot
from worker.observing.overview.figures import lag_of
from worker.running.components import Components
from worker.running.status_report import SHOWN_TABLES, StatusReport
from worker.units.delivery import Delivery


def test_the_status_shows_tables_in_trouble_first_then_the_busy_then_those_used_last() -> None:
    stage = TableStage(keep=1_000)
    for number in range(100):
        stage.one_each(f"idle{number}")
        stage.finish_all()
    stage.one_each("halted")
    work = stage.take(0)
    assert work is not None
    stage.lanes.halt(0, work, "for good")
    stage.one_each("running", "queued")
    running = stage.take(1)
    assert running is not None
    view = snapshot(stage.lanes.seen, stage.book.all(), 5)
    found = [(each.unit.table.name, each.state) for each in view.tables]
    assert found[0] == ("halted", "blocked")
    other = {"running", "queued"} - {running.unit.table.name}
    assert found[1:3] == [(running.unit.table.name, "running"), (other.pop(), "queued")]
    assert found[3:] == [("idle99", "idle"), ("idle98", "idle")]
    assert (view.standing.tables, view.halted, view.target_down) == (1, 1, 0)
    assert sum(records for _, records in view.finished) == 100
    view = snapshot(stage.lanes.seen, stage.book.all(), 1)
    assert [each.unit.table.name for each in view.tables] == ["halted"]
    assert sorted(chunk.messages[0].offset() for chunk in view.further) == [101, 102]
    assert stage.lanes.seen.halted() == ["shop.halted"]


def test_tables_that_wait_for_a_target_are_told_from_those_that_failed_for_good() -> None:
    stage = TableStage()
    for number in range(3):
        stage.one_each(f"t{number}")
        work = stage.take(0)
        assert work is not None
        if number:
            work.unit.blocked = True
            stage.lanes.give_back(0, work, delay=1e6, error="its target is down")
        else:
            stage.lanes.halt(0, work, "for good")
    stage.one_each("t0", "t0", "t2", "works")
    for shown in (1_000, 1):
        view = snapshot(stage.lanes.seen, stage.book.all(), shown)
        assert (view.standing.tables, view.halted, view.target_down) == (3, 1, 2)
        assert view.standing.records == 6, "the three that failed, and what came behind two of them"


@pytest.mark.parametrize("order_by", ["table", "row"])
def test_however_many_tables_are_busy_the_lock_is_held_for_few_of_them_at_a_time(
    order_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers' threads wait for it at each batch."""
    monkeypatch.setattr("worker.lanes.snapshot._AT_ONCE", 10)
    stage = TableStage(order_by=order_by, keep=1_000)
    if order_by == "row":
        for number in range(20):
            stage.poll(*(rows(stage.next + n, n, table=f"t{number}") for n in range(5)))
        while (work := stage.take()) is not None:
            stage.lanes.give_back(0, work, delay=1e6)
    else:
        stage.one_each(*(f"t{number}" for number in range(100)))
    counting = Counting(stage.lanes.lock)
    stage.lanes.seen.lock = counting  # type: ignore[assignment]  # the part that is used
    view = snapshot(stage.lanes.seen, stage.book.all(), 1_000)
    held = [chunk for each in view.tables for part in each.parts for chunk in part.held()]
    assert sorted(message.offset() for chunk in held for message in chunk.messages) == list(range(100))
    assert 10 <= counting.times <= 20


class Counting:
    """A lock that counts how often it was taken."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.times = 0

    def __enter__(self) -> None:
        self.times += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Timed:
    """A lock that knows how much of a processor's time it was held at most."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._since = 0.0
        self.longest = 0.0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._since = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.longest = max(self.longest, time.thread_time() - self._since)
        self._lock.release()


@pytest.mark.parametrize("oldest", ["queued", "running", "to be tried again", "halted"])
def test_the_pulse_tells_the_same_as_the_whole_status(oldest: str, tmp_path: Path) -> None:
    components, report = reporting(tmp_path, wall_clock=lambda: 10_000.0)
    lanes = components.lanes
    of = assignment()
    components.assignments.add([of])
    assert report.pulse().delay_seconds == 0.0
    router = Router(components.book, components.metrics, on_undecodable="halt")
    tables = 40
    for first in range(0, 1_000, 100):
        delivery = Delivery()
        router.route(of, [inserted(first + n, tables) for n in range(100)], delivery)
        assert lanes.offer(delivery)
    of.end = 1_500
    works = {}
    for number in range(16):
        work = lanes.take(number)
        assert work is not None
        works[number] = work
    # The first record of all is of table 1: the table with the oldest unfinished one is this one.
    first, *others = sorted(works, key=lambda number: works[number].chunks[0].messages[0].offset())
    for number in others[:2]:
        works[number].finish_records(5)
        lanes.give_back(number, works[number], delay=1e6, error="its target is down")
    if oldest == "queued":
        lanes.give_back(first, works[first], delay=0.0)
    elif oldest == "to be tried again":
        works[first].unit.blocked = True
        lanes.give_back(first, works[first], delay=1e6, error="its target is down")
    elif oldest == "halted":
        lanes.halt(first, works[first], "for good")
    for committed in (None, 700):
        of.committed = committed
        pulse, status = report.pulse(), report.whole()
        assert pulse.lag == lag_of(status)
        assert pulse.lag is not None
        assert pulse.blocked == {each.table for each in status.tables if each.state == "blocked"}
        assert len(pulse.blocked) == (oldest in ("to be tried again", "halted"))
        assert pulse.finished_records == status.finished_records
        assert pulse.delay_seconds is not None
        assert round(pulse.delay_seconds, 3) == status.partitions[0].delay_seconds == 10_000 - 1.001


def test_the_lag_of_partitions_that_came_is_no_growth(tmp_path: Path) -> None:
    now = [0.0]
    components, report = reporting(tmp_path, clock=lambda: now[0])
    own, other = assignment(), assignment(partition=1)
    own.committed, other.committed = 0, 0
    own.end, other.end = 1_000, 10**9
    components.assignments.add([own])
    growth = []
    for second in range(0, 60, 5):
        now[0] = float(second)
        if second == 40:
            components.assignments.add([other])
        report.pulse()
        pace = report().pace
        growth.append(None if pace is None else pace.lag_growth)
    assert growth == [None, None, *[0.0] * 6, None, None, 0.0, 0.0]


@pytest.mark.soak
def test_a_million_table_names_take_bounded_memory_and_are_told_of_at_once(tmp_path: Path) -> None:
    components, report = reporting(tmp_path)
    components.metrics.attach(report.look)
    router = Router(components.book, components.metrics, on_undecodable="halt")
    of = assignment()
    components.assignments.add([of])
    before = resident()
    for first in range(0, 1_000_000, 1_000):
        router.let_go(components.lanes.at_rest)
        delivery = Delivery()
        router.route(of, [inserted(first + n) for n in range(1_000)], delivery)
        assert components.lanes.offer(delivery)
        work = None
        while any(lane.ready for lane in components.lanes.lanes):
            work = components.lanes.take(0, work)
            assert work is not None
            work.unit.finished_records += work.finish_records(work.records)
        if work is not None:
            components.lanes.finish(0, work)
        of.tracker.checkpoint()
    assert resident() - before < 200 * 2**20
    timed = Timed(components.lanes.lock)
    components.lanes.lock = components.lanes.seen.lock = timed  # type: ignore[assignment]  # the part that is used
    for tell in (lambda: generate_latest(components.metrics.registry), lambda: msgspec.json.encode(report())):
        begin = time.thread_time()
        tell()
        assert time.thread_time() - begin < 0.5  # a walk through a million takes seconds
    assert timed.longest < 0.005
    assert len(report().tables) == SHOWN_TABLES
    assert report().tables_omitted >= 9_000
    finished = [
        each for each in components.metrics.registry.collect() if each.name == "binlane_records_finished"
    ]
    assert sum(sample.value for sample in finished[0].samples) == 500_000


def test_an_expectation_counts_from_zero_on(tmp_path: Path) -> None:
    """Prometheus sees no increase of a counter that begins with 1."""
    components, report = reporting(tmp_path, expect={"has_id": "id > 0", "other": "id < 9"})
    components.metrics.attach(report.look)
    components.book.meet("shop", "orders")
    text = generate_latest(components.metrics.registry).decode()
    for rule in ("has_id", "other"):
        assert f'binlane_expectations_failed_total{{rule="{rule}",table="shop.orders"}} 0.0' in text


def reporting(
    folder: Path,
    wall_clock: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    **rule: Any,
) -> tuple[Components, StatusReport]:
    """The parts of a worker, without its threads, and what tells of them."""
    settings = configuration(
        {"match": "shop.*", **rule}, lanes={"count": 16}, checkpoint={"directory": str(folder)}, http=None
    )
    components = Components(settings, clock=time.monotonic, fail=lambda error: None, stop=threading.Event())
    components.lanes.trust(math.inf)  # as after a commit
    report = StatusReport(
        settings,
        components,
        state=lambda: "running",
        error=lambda: None,
        clock=clock,
        wall_clock=wall_clock,
    )
    return components, report


def inserted(number: int, tables: int = 10**7) -> Message:
    """A record of one of so many tables; a rule matches every other one."""
    database = b"shop" if number % 2 else b"other"
    value = b'{"database":"%s","table":"t%07d","type":"INSERT","isDdl":false,"es":%d,"data":[{"id":"1"}],'
    value += b'"mysqlType":{"id":"bigint"},"pkNames":["id"]}'
    return Message(
        topic=TOPIC, partition=0, offset=number, value=value % (database, number % tables, 1_000 + number)
    )


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
