"""Tables whose handler has a limit: who waits, and what nobody takes for a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from building import Clock, Scripted, assignment, chunk, delivery, record, seen, unit
from lane_building import Source, closed, lanes_of, taken
from processing import NOW, Stage, raising
from row_building import row_unit, rows
from structlog.testing import capture_logs

from handlers import Batch, TargetUnavailable
from handlers.failures import AskAgain
from offsets.types import Checkpoint
from worker.attempts.circuit import BoundHandler, Circuit
from worker.attempts.limit import Limit
from worker.attempts.steps import SetAside
from worker.configuration import LimitRule
from worker.lanes.lanes import Lanes
from worker.lanes.record_location import set_aside
from worker.lanes.snapshot import snapshot
from worker.observing.metrics import Metrics
from worker.processing.failures import FailureRules
from worker.processing.processor import Processor
from worker.units.table import Table
from worker.units.unit import Unit, UnitState
from worker.units.work import Work


class Target:
    """Counts the calls that are inside it. While `gate` is set up, they stay there."""

    def __init__(self, *, gate: bool = False) -> None:
        self.gate = threading.Event()
        if not gate:
            self.gate.set()
        self.inside = 0
        self.most = 0
        self.calls = 0
        self._lock = threading.Lock()  # guards the counters

    def __call__(self, _batch: Batch) -> None:
        with self._lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.gate.wait(10)
        threading.Event().wait(0.001)
        with self._lock:
            self.inside -= 1


def limited(limit: Limit, *units: Unit) -> Limit:
    """The first handler of these tables is one configured handler."""
    circuit = Circuit()
    for each in units:
        first, *others = each.table.handlers
        each.table.handlers = (BoundHandler(first.name, first.objects, circuit, limit), *others)
    return limit


@contextmanager
def running(stage: Stage) -> Iterator[None]:
    stage.start()
    yield
    stage.stop()
    assert not stage.errors


def at_rest(limit: Limit, units: list[Unit]) -> Callable[[], bool]:
    return lambda: all(each.at_rest for each in units) and not limit.waiting


@pytest.mark.parametrize("make", [unit, row_unit])
def test_no_more_calls_than_it_allows_run_in_all_lanes_together(make: Callable[..., Unit]) -> None:
    stage, target = Stage(lanes=8), Target(gate=True)
    tables = [make(f"t{n}", Scripted(target), lane=n % 8, batch={"max_records": 5}) for n in range(10)]
    limit = limited(Limit(LimitRule(calls=3)), *tables)
    stage.offer(*((each, range(n * 40, n * 40 + 40)) for n, each in enumerate(tables)))
    with running(stage):
        stage.wait(lambda: target.inside == 3 and not stage.lanes.schedule.ready)
        assert limit.waiting >= 7
        target.gate.set()
        stage.wait(at_rest(limit, tables))
    assert target.most == 3
    assert stage.checkpoint() == Checkpoint(400)


def test_who_waits_holds_no_processor_and_has_not_failed() -> None:
    stage, target = Stage(lanes=2), Target(gate=True)
    first, second, other = unit("first", Scripted(target)), unit("second", Scripted()), unit("other", lane=1)
    limit = limited(Limit(LimitRule(calls=1)), first, second)
    stage.offer((first, [0]))
    with capture_logs() as logs, running(stage):
        stage.wait(lambda: target.inside)
        stage.offer((second, range(1, 4)), (other, range(4, 8)))
        stage.wait(lambda: other.finished_records == 4 and limit.waiting == 1)
        stage.wait(lambda: second.state is UnitState.LIMITED)
        assert (second.error, second.blocked, second.failed_batches) == (None, False, 0)
        view = snapshot(stage.lanes.seen, [first, second, other], 3)
        assert [each.state for each in view.tables] == ["running", "queued", "idle"]
        assert (view.standing.tables, view.target_down, view.halted) == (0, 0, 0)
        [kept] = stage.lanes.schedule.kept.values()
        assert kept.changes is None, "many may wait, so none keeps its rows as objects"
        target.gate.set()
        stage.wait(at_rest(limit, [first, second]))
    handler = second.table.handlers[0].objects[0]
    assert isinstance(handler, Scripted)
    assert handler.calls == [(1, [(1, 0), (2, 0), (3, 0)])]
    assert limit.waited > 0
    assert not logs
    assert not stage.counted("binlane_handler_failures_total{")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), TargetUnavailable("down")])
def test_a_call_that_raises_gives_its_permission_back(error: BaseException) -> None:
    stage = Stage(lanes=2)
    # Seconds pass before the next call if a target is down for one table alone.
    times = 1 if isinstance(error, TargetUnavailable) else 3
    bad = unit("bad", Scripted(raising(error, times=times)), retry=NOW)
    good = unit("good", Scripted(), lane=1, batch={"max_records": 1})
    limit = limited(Limit(LimitRule(calls=1)), bad, good)
    stage.offer((bad, [0]), (good, range(1, 9)))
    with running(stage):
        stage.wait(at_rest(limit, [bad, good]))
    assert stage.checkpoint() == Checkpoint(9)
    assert limit.start(bad, 1, now=0.0), "nothing runs any more"


def test_each_attempt_needs_permission_and_a_wait_between_counts_as_none() -> None:
    stage, target = Stage(lanes=2), Target(gate=True)
    bad = unit("bad", Scripted(raising(ValueError("no"), times=2)), retry=NOW | {"max_attempts": 3})
    busy = unit("busy", Scripted(target), lane=1)
    limit = limited(Limit(LimitRule(calls=1)), bad, busy)
    with running(stage):
        for offset in range(3):
            target.gate.clear()
            stage.offer((busy, [offset * 2]))
            stage.wait(lambda: target.inside)
            stage.offer((bad, [offset * 2 + 1]))
            stage.wait(lambda: limit.waiting == 1 and bad.state is UnitState.LIMITED)
            target.gate.set()
            stage.wait(at_rest(limit, [bad, busy]))
    handler = bad.table.handlers[0].objects[0]
    assert isinstance(handler, Scripted)
    assert [attempt for attempt, _ in handler.calls] == [1, 2, 3, 1, 1]
    assert (bad.failed_batches, bad.error) == (2, None)


def test_a_table_that_failed_before_still_says_so_while_it_waits() -> None:
    stage, target, failed = Stage(lanes=2), Target(gate=True), threading.Event()

    def script(_batch: Batch) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("no")

    bad = unit("bad", Scripted(script), retry={"initial_delay": 0.05, "jitter": 0.0})
    busy = unit("busy", Scripted(target), lane=1)
    limit = limited(Limit(LimitRule(calls=1)), bad, busy)
    with running(stage):
        stage.offer((bad, [0]))
        stage.wait(failed.is_set)
        stage.offer((busy, [1]))
        stage.wait(lambda: bad.state is UnitState.LIMITED)
        view = snapshot(stage.lanes.seen, [bad], 1)
        assert [each.state for each in view.tables] == ["retrying"]
        assert view.standing.tables == 1
        target.gate.set()
        stage.wait(at_rest(limit, [bad, busy]))
    assert bad.error is None


def test_a_record_that_is_to_be_set_aside_is_tried_once_more_when_the_limit_allows_it() -> None:
    stage, handler = Stepped(), Scripted(raising(ValueError("no"), times=1))
    bad = unit("bad", handler, retry={"max_attempts": 1}, on_failure="halt")
    limit = limited(Limit(LimitRule(calls=1)), bad)
    stage.source.offer((bad, 1), value=record(0).value())
    stage.step()
    [work] = stage.lanes.schedule.kept.values()
    assert bad.state is UnitState.HALTED
    assert limit.start(unit("another"), 1, stage.clock.now)
    order = SetAside("skip", "somebody")
    assert set_aside(stage.lanes, bad, work, 0, order)
    stage.step()
    assert bad.state is UnitState.LIMITED
    limit.ended()
    stage.lanes.schedule.permits.serve(limit)
    stage.step()
    assert (bad.at_rest, order.changes) == (True, 0)


def test_the_shards_of_one_table_leave_others_their_turn() -> None:
    stage, order = Stage(lanes=4), list[str]()
    hot = row_unit("hot", Scripted(lambda batch: order.append(batch.table)))
    gate = Target(gate=True)
    first = unit("first", Scripted(gate), lane=1)
    others = [unit(f"t{n}", Scripted(lambda batch: order.append(batch.table)), lane=n) for n in range(3)]
    limit = limited(Limit(LimitRule(calls=1)), first, hot, *others)
    with running(stage):
        stage.offer((first, [0]))
        stage.wait(lambda: gate.inside)
        assert stage.lanes.offer(delivery((hot, chunk(stage.partition, [rows(1, *range(200))]))))
        assert hot.shards is not None
        stage.wait(lambda: limit.waiting > 20)
        stage.offer(*((each, [n + 2]) for n, each in enumerate(others)))
        stage.wait(lambda: all(each.state is UnitState.LIMITED for each in others))
        gate.gate.set()
        stage.wait(at_rest(limit, [first, hot, *others]))
    assert set(order[:4]) == {"shop.hot", "shop.t0", "shop.t1", "shop.t2"}
    assert order.count("shop.hot") > 20


def test_other_handlers_of_the_table_are_called_once_and_at_once() -> None:
    stage, target, free = Stage(lanes=2), Target(gate=True), Scripted()
    busy, table = unit("busy", Scripted(target)), unit("orders", Scripted(), free, lane=1)
    limit = limited(Limit(LimitRule(calls=1)), busy, table)
    with running(stage):
        stage.offer((busy, [0]))
        stage.wait(lambda: target.inside)
        stage.offer((table, [1, 2]))
        stage.wait(lambda: limit.waiting == 1)
        assert seen(free) == [[1, 2]]
        target.gate.set()
        stage.wait(at_rest(limit, [busy, table]))
    assert seen(free) == [[1, 2]]


def test_a_target_that_comes_back_is_found_though_its_probe_had_to_wait() -> None:
    stage, target = Stage(lanes=2), Target(gate=True)
    down = unit("down", Scripted(raising(TargetUnavailable("no"), times=1)), retry={"initial_delay": 0.02})
    busy = unit("busy", Scripted(target), lane=1)
    limit = limited(Limit(LimitRule(calls=1)), down, busy)
    with running(stage):
        stage.offer((busy, [0]))
        stage.wait(lambda: target.inside)
        stage.offer((down, [1]))
        stage.wait(lambda: limit.waiting == 1)
        target.gate.set()
        stage.wait(at_rest(limit, [down, busy]))
    assert stage.checkpoint() == Checkpoint(2)


class Stepped:
    """One processor, called by the test on a clock that stands still until nothing can run."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.lanes: Lanes = lanes_of(self.clock, count=1)
        self.source = Source(self.lanes)
        self.processor = Processor(
            0,
            self.lanes,
            Metrics(),
            rules=FailureRules(),
            clock=self.clock,
            random=lambda: 0.5,
            fail=lambda error: pytest.fail(str(error)),
        )

    def step(self) -> None:
        """Run what is ready."""
        while self.lanes.schedule.ready:
            work: Work | None = self.lanes.take(0)
            assert work is not None
            if (finished := self.processor._work(work)) is not None:
                self.lanes.finish(0, finished)

    def run(self) -> None:
        self.step()
        timers = self.lanes.schedule.timers
        while timers:
            self.clock.now = timers.next_due()
            self.lanes.schedule.let_run(timers.due(self.clock.now))
            self.step()


def test_rows_of_all_tables_together_keep_to_the_rate() -> None:
    stage = Stepped()
    begun: list[tuple[float, int]] = []

    def script(batch: Batch) -> None:
        begun.append((stage.clock.now, len(batch.changes)))

    tables = [unit(f"t{n}", Scripted(script), batch={"max_records": 30 + 100 * n}) for n in range(3)]
    limit = limited(Limit(LimitRule(rows_per_second=100)), *tables)
    for _ in range(5):
        stage.source.offer(*((each, 100) for each in tables), value=record(0).value())
    stage.run()
    assert sum(rows for _, rows in begun) == 1_500
    for first, (begin, _) in enumerate(begun):
        total = largest = 0
        for end, count in begun[first:]:
            total, largest = total + count, max(largest, count)
            assert total <= 100 * (end - begin) + max(100, largest) + 1e-6
    assert 12.0 < begun[-1][0] - begun[0][0] < 15.0, "nor does it stay behind it"
    assert not limit.waiting


def held_up() -> tuple[Stepped, Unit, Limit]:
    """A table waits; another one's call runs."""
    stage, table = Stepped(), unit("waits")
    limit = limited(Limit(LimitRule(calls=1)), table)
    assert limit.start(unit("another"), 1, stage.clock.now)
    stage.source.offer((table, 5), value=record(0).value())
    stage.step()
    assert (table.state, limit.waiting) == (UnitState.LIMITED, 1)
    return stage, table, limit


def gives_up(limit: Limit, stage: Stepped) -> None:
    """Nothing of the table stands between others and the permit."""
    assert (limit.waiting, limit.granted) == (0, {})
    limit.ended()
    assert limit.start(unit("a third"), 1, stage.clock.now)


@pytest.mark.parametrize("granted", [False, True])
def test_a_table_whose_partition_is_revoked_gives_up_its_place(granted: bool) -> None:
    stage, table, limit = held_up()
    if granted:
        limit.ended()
        stage.lanes.schedule.permits.serve(limit)
        assert table.state is UnitState.READY
        assert limit.start(unit("an early one"), 1, stage.clock.now) is False
    assert stage.lanes.withdraw([table], closed(stage.source.assignment), 0.0) == []
    assert table.state is UnitState.IDLE
    if granted:
        assert limit.start(unit("another"), 1, stage.clock.now)
    gives_up(limit, stage)


def test_what_another_partition_leaves_behind_waits_anew() -> None:
    stage, table, limit = held_up()
    gone = assignment(1)
    Source(stage.lanes, gone).offer((table, 3), value=record(0).value())
    stage.lanes.withdraw([table], closed(stage.source.assignment), 0.0)
    stage.step()
    assert (table.state, limit.waiting) == (UnitState.LIMITED, 1)


def test_a_table_with_other_handlers_gives_up_its_place() -> None:
    stage, table, limit = held_up()
    other = Scripted()
    new = Table("shop", "waits", table.table.rule, [BoundHandler("new", (other,))])
    stage.lanes.give_tables([(table, new)])
    gives_up(limit, stage)
    stage.step()
    assert seen(other) == [[0, 1, 2, 3, 4]]
    assert table.at_rest


@pytest.mark.parametrize("rule", [LimitRule(calls=1), LimitRule(rows_per_second=100)])
def test_a_table_whose_rule_changes_while_its_batch_is_decoded_leaves_no_place_behind(
    rule: LimitRule,
) -> None:
    stage, table, third = Stepped(), unit("waits"), unit("third")
    limit = limited(Limit(rule), table, third)
    assert limit.start(unit("another"), 100, stage.clock.now)
    stage.source.offer((table, 5), value=record(0).value())
    stage.step()
    stage.lanes.schedule.let_run((table,))  # its time has come
    work = taken(stage.lanes, 0)
    stage.lanes.give_tables([(table, Table("shop", "waits", table.table.rule, table.table.handlers))])
    limit.ended()
    stage.clock.now += 1.0
    assert stage.processor._work(work) is work
    stage.lanes.finish(0, work)
    assert (limit.waiting, limit.granted) == (0, {})
    stage.source.offer((third, 5), value=record(0).value())
    stage.run()
    assert third.at_rest


def test_a_table_that_waits_is_tried_at_once_when_its_limit_changes() -> None:
    stage, table, limit = held_up()
    rule, bound = table.table.rule, table.table.handlers
    limit.change(LimitRule(calls=2))
    stage.lanes.give_tables([(table, Table("shop", "waits", rule, bound))])
    stage.step()
    assert table.at_rest
    assert not limit.waiting


def test_a_handler_that_waits_keeps_its_place_though_another_one_fails_and_that_one_its_delay() -> None:
    stage, failing = Stepped(), Scripted(raising(ValueError("no"), times=1))
    table = unit("orders", Scripted(), failing, retry={"initial_delay": 60, "max_delay": 60, "jitter": 0.0})
    limit = limited(Limit(LimitRule(calls=1)), table)
    assert limit.start(unit("another"), 1, stage.clock.now)
    stage.source.offer((table, 1), value=record(0).value())
    stage.step()
    assert (table.state, limit.waiting) == (UnitState.LIMITED, 1)
    limit.ended()
    stage.lanes.schedule.permits.serve(limit)
    stage.step()
    assert (table.state, limit.waiting, limit.granted) == (UnitState.BACKOFF, 0, {})
    assert (table.failed_batches, len(failing.calls)) == (1, 1)
    begin = stage.clock.now
    stage.run()
    assert (table.at_rest, stage.clock.now - begin) == (True, 60)


def reload(stage: Stepped, limit: Limit, rule: LimitRule | None, *tables: Unit) -> None:
    """As `Reloader` does it."""
    limit.change(rule)
    stage.lanes.give_tables(
        [(each, Table("shop", each.table.name, each.table.rule, each.table.handlers)) for each in tables]
    )


@pytest.mark.parametrize("rule", [LimitRule(calls=1), LimitRule(rows_per_second=100)])
def test_a_limit_that_is_removed_and_set_again_knows_no_former_permit(rule: LimitRule) -> None:
    stage, table, third = Stepped(), unit("waits"), unit("third")
    limit = limited(Limit(rule), table, third)
    assert limit.start(unit("another"), 100, stage.clock.now)
    stage.source.offer((table, 5), value=record(0).value())
    stage.step()
    assert table.state is UnitState.LIMITED
    limit.ended()
    stage.clock.now += 5.0
    stage.lanes.schedule.permits.serve(limit)
    work = taken(stage.lanes, 0)  # its call is permitted, and its batch is decoded now
    reload(stage, limit, None, table, third)
    assert stage.processor._work(work) is work
    stage.lanes.finish(0, work)
    reload(stage, limit, rule, table, third)
    stage.source.offer((third, 200), value=record(0).value())
    stage.run()
    assert third.at_rest


@pytest.mark.parametrize("between", [LimitRule(rows_per_second=5), None])
def test_a_raised_rate_is_applied_at_once(between: LimitRule | None) -> None:
    """Nothing waits for the rows of the former rate, whether the limit was removed for a while or not."""
    stage, first, table = Stepped(), unit("first", batch={"max_records": 5_000}), unit("waits")
    limit = limited(Limit(LimitRule(rows_per_second=5)), first, table)
    stage.source.offer((first, 5_000), value=record(0).value())
    stage.step()
    limit.change(between)
    limit.change(LimitRule(rows_per_second=5_000))
    stage.source.offer((table, 5), value=record(0).value())
    begin = stage.clock.now
    stage.run()
    assert (table.at_rest, stage.clock.now - begin) == (True, 0)


def test_rows_count_once_though_a_handler_that_has_them_is_asked_for_the_result() -> None:
    stage = Stepped()
    accepted: dict[int, float] = {}  # first offset of each batch -> when the handler got it
    asked = list[int]()

    def script(batch: Batch) -> None:
        first = batch.changes[0].offset
        accepted.setdefault(first, stage.clock.now)
        asked.append(first)
        if asked.count(first) < 5:
            raise AskAgain(0.01)

    table = unit("a", Scripted(script), batch={"max_records": 100})
    limited(Limit(LimitRule(rows_per_second=100)), table)
    for _ in range(10):
        stage.source.offer((table, 100), value=record(0).value())
    stage.run()
    begun = list(accepted.values())
    assert (len(begun), len(asked)) == (10, 50)
    assert begun[-1] - begun[0] < 11
