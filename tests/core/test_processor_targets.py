"""Processors and targets that are down: who waits, who does not, and what is told of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from building import Scripted, chunk, delivery, record, seen, unit
from processing import NOW, Stage
from row_building import row_unit, rows
from structlog.testing import capture_logs

from handlers import Batch, TargetUnavailable
from handlers.rows import SHARDS
from offsets.types import Checkpoint
from worker.attempts import retry_and_split
from worker.attempts.circuit import BoundHandler, Circuit
from worker.units.unit import Unit, UnitState

QUICK = {"initial_delay": 0.01, "max_delay": 0.01, "jitter": 0.0, "max_attempts": 1}


class Target:
    """Handlers share it; it is down until told otherwise."""

    def __init__(self) -> None:
        self.up = threading.Event()
        self.calls = 0
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()  # guards the counters

    def __call__(self, _batch: Batch) -> None:
        with self._lock:
            self.calls += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if not self.up.is_set():
                raise TargetUnavailable("connection refused")
        finally:
            with self._lock:
                self.at_once -= 1


def sharing(circuit: Circuit, *units: Unit) -> None:
    """These tables have one configured handler."""
    for each in units:
        bound = each.table.handlers[0]
        each.table.handlers = (BoundHandler(bound.name, bound.objects, circuit), *each.table.handlers[1:])


def waiting(*units: Unit) -> Callable[[], bool]:
    return lambda: all(each.state is UnitState.BACKOFF and each.blocked for each in units)


def test_a_table_whose_target_is_down_is_blocked_and_goes_on_by_itself() -> None:
    stage, target = Stage(), Target()
    table = unit("orders", Scripted(target), retry=QUICK)
    stage.offer((table, range(3)))
    with capture_logs() as logs:
        stage.start()
        stage.wait(lambda: target.calls >= 5)
        assert table.blocked
        assert table.error == "TargetUnavailable: connection refused (handler h0)"
        target.up.set()
        stage.wait(lambda: table.finished_records == 3)
        stage.stop()
    assert table.failed_batches == 0
    assert stage.checkpoint() == Checkpoint(3)
    down, up = [log for log in logs if log["log_level"] != "debug"]
    assert (down["event"], down["handler"], down["error"]) == ("target_down", "h0", "connection refused")
    assert up["event"] == "target_up"
    assert up["down_seconds"] >= 0


def test_a_table_that_its_target_does_not_take_is_told_once_and_stops_no_other() -> None:
    stage, target = Stage(lanes=1), Target()

    def refuse(batch: Batch) -> None:
        target.calls += 1
        if not target.up.is_set():
            raise TargetUnavailable("it has no such index", others_go_on=True)

    held, other = unit("orders", Scripted(refuse), retry=QUICK), unit("other", Scripted())
    sharing(Circuit(), held, other)
    stage.offer((held, range(3)), (other, range(3, 6)))
    with capture_logs() as logs:
        stage.start()
        stage.wait(lambda: target.calls >= 5 and other.finished_records == 3)
        assert held.blocked
        target.up.set()
        stage.wait(lambda: held.finished_records == 3)
        stage.stop()
    (told,) = [log for log in logs if log["log_level"] != "debug"]
    assert (told["event"], told["table"], told["handler"]) == ("table_waits", "shop.orders", "h0")
    assert told["error"] == "it has no such index"


def test_a_table_for_which_its_target_is_always_down_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many parts in one table of ClickHouse, say."""
    monkeypatch.setattr(retry_and_split, "_ALONE", 0.05)
    stage, target = Stage(lanes=2), Target()
    held = unit("held", Scripted(target), retry=QUICK)
    others = [unit(f"other{n}", Scripted(), lane=n % 2, batch={"max_records": 1}) for n in range(8)]
    sharing(Circuit(), held, *others)
    stage.offer((held, [0]), *((each, range(n * 50 + 1, n * 50 + 51)) for n, each in enumerate(others)))
    with capture_logs() as logs:
        stage.start()
        stage.wait(lambda: all(each.finished_records == 50 for each in others))
        assert held.blocked
        target.up.set()
        stage.wait(lambda: held.finished_records == 1)
        stage.stop()
    told = [(log["event"], log.get("table")) for log in logs if log["log_level"] != "debug"]
    assert told[0] == ("target_down", None)
    assert sorted(told[1:], key=str) == [("table_waits", "shop.held"), ("target_up", None)]  # of two lanes


def test_no_table_waits_for_its_turn_among_the_shards_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_and_split, "_ALONE", 0.05)
    stage, target = Stage(lanes=4), Target()
    held = row_unit("held", Scripted(target), retry={"initial_delay": 0.02, "jitter": 0.0})
    handled: list[int] = []
    other = unit("other", Scripted(lambda _: handled.append(target.calls)), lane=1)
    sharing(Circuit(), held, other)
    offer = [chunk(stage.partition, [rows(0, *range(500))]), chunk(stage.partition, [record(1, "other")])]
    stage.start()
    assert stage.lanes.offer(delivery((held, offer[0])))
    stage.wait(lambda: target.calls >= 8)
    before = target.calls
    assert stage.lanes.offer(delivery((other, offer[1])))
    stage.wait(lambda: other.finished_records == 1)
    assert handled[0] - before < SHARDS
    target.up.set()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    stage.stop()


def test_tables_of_other_targets_are_handled_as_if_nothing_were_wrong() -> None:
    stage, target = Stage(lanes=1), Target()
    down = [unit(f"down{n}", Scripted(target), retry={"initial_delay": 60.0}) for n in range(5)]
    circuit = Circuit()
    sharing(circuit, *down)
    fine = unit("fine")
    stage.offer(*((each, [n]) for n, each in enumerate(down)), (fine, range(5, 9)))
    stage.run(until=lambda: fine.finished_records == 4 and waiting(*down)())
    assert target.calls == 1, "the others are not even tried"
    assert all(each.error and "connection refused" in each.error for each in down)


def test_one_batch_at_a_time_finds_out_and_then_all_go_on_at_once() -> None:
    stage, target = Stage(lanes=8), Target()
    handlers = [Scripted(target) for _ in range(8)]
    tables = [unit(f"t{n}", handler, lane=n, retry=QUICK) for n, handler in enumerate(handlers)]
    sharing(Circuit(), *tables)
    stage.offer((tables[0], [0]))
    stage.start()
    stage.wait(waiting(tables[0]))
    stage.offer(*((each, [n]) for n, each in enumerate(tables) if n))
    before = target.calls
    stage.wait(lambda: target.calls >= before + 20)
    assert target.most_at_once == 1
    target.up.set()
    stage.wait(lambda: all(each.finished_records == 1 for each in tables))
    stage.stop()
    assert {attempt for handler in handlers for attempt, _ in handler.calls} == {1}


def test_a_long_wait_ends_when_another_table_finds_the_target_back() -> None:
    stage, target = Stage(lanes=2), Target()
    patient = unit("patient", Scripted(target), retry={"initial_delay": 60.0})
    eager = unit("eager", Scripted(target), retry=QUICK, lane=1)
    circuit = Circuit()
    sharing(circuit, patient, eager)
    stage.offer((eager, [0]))
    stage.start()
    stage.wait(waiting(eager))
    stage.offer((patient, [1]))
    stage.wait(lambda: patient.blocked)
    target.up.set()
    stage.wait(lambda: patient.finished_records == eager.finished_records == 1)
    stage.stop()


def test_other_handlers_of_the_table_are_called_once() -> None:
    stage, target, fine = Stage(), Target(), Scripted()
    table = unit("orders", fine, Scripted(target), retry=QUICK)
    stage.offer((table, range(3)))
    stage.start()
    stage.wait(lambda: target.calls >= 3)
    target.up.set()
    stage.wait(lambda: table.finished_records == 3)
    stage.stop()
    assert seen(fine) == [[0, 1, 2]]


def test_an_ordinary_failure_beside_it_is_an_attempt_like_any_other() -> None:
    stage, target = Stage(), Target()

    def script(_batch: Batch) -> None:
        raise ValueError("never")

    table = unit("orders", Scripted(script), Scripted(target), retry=NOW | {"max_attempts": 3})
    stage.offer((table, range(1)))
    stage.run(table)
    assert table.state is UnitState.HALTED
    assert (table.blocked, table.error) == (False, "ValueError: never (handler h0)")


def test_a_worker_that_stops_does_not_wait_for_the_target() -> None:
    stage, target = Stage(), Target()
    table = unit("orders", Scripted(target), retry={"initial_delay": 60.0})
    stage.offer((table, range(3)))
    stage.run(until=waiting(table))
    assert not stage.lanes.seen.running()
    assert stage.checkpoint() == Checkpoint(0)
