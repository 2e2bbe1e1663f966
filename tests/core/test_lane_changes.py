"""Lanes, bounds and tables change while batches run: counts stay right, nothing is lost or overtaken."""

from __future__ import annotations

import threading

import pytest
from building import Clock, chunk, delivery, record, unit
from lane_building import Source, lanes_of, offsets, taken
from stepping import Doing, SteppedProcessor, nobody_sleeps_while_there_is_work

from handlers import Batch, Handler
from worker.attempts.circuit import BoundHandler
from worker.attempts.retry_and_split import HandlerRun
from worker.configuration import LanesRule, TableRule
from worker.lanes.batch_cutting import rebound
from worker.lanes.lanes import Lanes
from worker.units.table import Table
from worker.units.unit import Unit, UnitState


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rule(count: int, **bounds: object) -> LanesRule:
    return LanesRule.model_validate({"count": count, **bounds})


class Quiet(Handler):
    def handle(self, batch: Batch) -> None:
        pass


def bound(name: str = "quiet") -> BoundHandler:
    return BoundHandler(name, (Quiet(),))


def table(handlers: list[BoundHandler], **keys: object) -> Table:
    entry = {"match": "*", "handlers": [{"type": "log"}], **keys}
    return Table("shop", "a", TableRule.model_validate(entry), handlers)


def test_what_tables_hold_counts_against_their_new_lanes(clock: Clock) -> None:
    lanes = lanes_of(clock, 3)
    source = Source(lanes)
    units = [unit(name, lane=number) for number, name in enumerate("abc")]
    source.offer(*((each, 5) for each in units))
    running = taken(lanes, 0)
    assert lanes.resize(rule(1), lambda _: 0, units) == []
    assert [lane.records for lane in lanes.lanes] == [15, 0, 0]
    lanes.finish(0, running)
    assert [lane.records for lane in lanes.lanes] == [10, 0, 0]
    assert lanes.resize(rule(2), lambda each: units.index(each) % 2, units) == []
    assert [lane.records for lane in lanes.lanes] == [5, 5, 0]


def test_who_was_ready_first_is_taken_first_whatever_lane_it_is_in_now(clock: Clock) -> None:
    lanes = lanes_of(clock, 3)
    source = Source(lanes)
    units = [unit(name, lane=2 - number) for number, name in enumerate("abc")]
    for each in units:
        source.offer((each, 1))
    lanes.resize(rule(1), lambda _: 0, units)
    assert [taken(lanes, 0).unit for _ in units] == units


def test_a_lane_that_is_given_up_ends_with_its_batch_and_can_come_back(clock: Clock) -> None:
    lanes = lanes_of(clock, 2)
    source = Source(lanes)
    a, b = unit("a", lane=0), unit("b", lane=1)
    source.offer((a, 1), (b, 1))
    first, second = taken(lanes, 0), taken(lanes, 1)
    assert lanes.resize(rule(1), lambda _: 0, [a, b]) == []
    assert lanes.seen.running() == [first, second]
    assert lanes.take(1, second) is None
    assert [lane.records for lane in lanes.lanes] == [1, 0]
    # It has no processor any more: it needs one to come back, the first lane does not.
    assert lanes.resize(rule(3), lambda _: 0, [a, b]) == [1, 2]


def test_a_lane_that_comes_back_before_its_processor_has_ended_keeps_it(clock: Clock) -> None:
    lanes = lanes_of(clock, 2)
    source = Source(lanes)
    a = unit("a", lane=1)
    source.offer((a, 1))
    running = taken(lanes, 1)
    lanes.resize(rule(1), lambda _: 0, [a])
    assert lanes.resize(rule(2), lambda _: 1, [a]) == []
    source.offer((a, 1))
    again = lanes.take(1, running)
    assert again is not None
    assert offsets(again) == [1]


def test_an_idle_processor_whose_lane_is_given_up_ends(clock: Clock) -> None:
    lanes = lanes_of(clock, 2)
    ended = threading.Event()

    def wait_for_work() -> None:
        if lanes.take(1) is None:
            ended.set()

    threading.Thread(target=wait_for_work, daemon=True).start()
    lanes.resize(rule(1), lambda _: 0, [])
    assert ended.wait(5)


def test_who_ends_leaves_the_timer_it_watched_to_another(clock: Clock) -> None:
    lanes = lanes_of(clock)
    staying, ending = (SteppedProcessor(lanes, number, clock) for number in range(2))
    a = unit("a", lane=1, batch={"max_wait": 4.0})
    Source(lanes).offer((a, 1))
    ending.step()
    staying.step()
    assert (ending.until, staying.until) == (clock.now + 4.0, float("inf"))
    lanes.resize(rule(1), lambda _: 0, [a])
    staying.step()
    ending.step()
    assert ending.doing is Doing.STOPPED
    nobody_sleeps_while_there_is_work([staying, ending], [a], stealing=True)
    staying.step()
    assert staying.until == clock.now + 4.0
    close(lanes, staying, ending)


def test_who_ends_tells_another_of_what_its_last_batch_made_ready(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    staying, ending = (SteppedProcessor(lanes, number, clock) for number in range(2))
    a = unit("a", lane=1)
    source.offer((a, 1))
    ending.step()
    source.offer((a, 1))
    lanes.resize(rule(1), lambda _: 0, [a])
    staying.step()
    assert staying.asleep
    assert ending.work is not None
    lanes.finish(1, ending.work)
    ending.put_down()
    ending.step()
    nobody_sleeps_while_there_is_work([staying, ending], [a], stealing=True)
    staying.step()
    assert staying.work is not None
    assert offsets(staying.work) == [1]
    close(lanes, staying, ending)


def test_a_batch_given_back_by_one_that_took_it_elsewhere_goes_on_in_its_own_lane(clock: Clock) -> None:
    lanes = lanes_of(clock)
    here, elsewhere = (SteppedProcessor(lanes, number, clock) for number in range(2))
    a = unit("a", lane=0)
    Source(lanes).offer((a, 1))
    elsewhere.step()
    lanes.resize(rule(2, work_stealing=False), lambda _: 0, [a])
    here.step()
    assert elsewhere.work is not None
    lanes.give_back(1, elsewhere.work, delay=0.0)
    elsewhere.put_down()
    elsewhere.step()
    assert not here.asleep
    here.step()
    assert here.doing is Doing.WORKING
    close(lanes, here, elsewhere)


def close(lanes: Lanes, *processors: SteppedProcessor) -> None:
    lanes.stop()
    for processor in processors:
        processor.close()


def test_smaller_bounds_hold_for_what_comes_and_larger_ones_let_in_what_waits(clock: Clock) -> None:
    lanes = lanes_of(clock, 1, max_records=10)
    source = Source(lanes)
    a = unit("a", lane=0)
    assert source.offer((a, 8))
    lanes.resize(rule(1, max_records=5), lambda _: 0, [a])
    held = delivery((a, chunk(source.assignment, [record(8)])))
    assert not lanes.offer(held)
    lanes.resize(rule(1, max_records=20), lambda _: 0, [a])
    held.recount()
    assert lanes.wait_for_space(0.0)
    assert lanes.offer(held)


def test_a_held_delivery_counts_for_the_lanes_its_tables_have_now(clock: Clock) -> None:
    lanes = lanes_of(clock, 2)
    source = Source(lanes)
    a = unit("a", lane=1)
    held = delivery((a, chunk(source.assignment, [record(0)])))
    assert held.records == {1: 1}
    lanes.resize(rule(1), lambda _: 0, [a])
    held.recount()
    assert held.records == {0: 1}


def test_a_running_batch_ends_with_its_handlers_and_the_next_one_gets_the_new(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    a = unit("a", lane=0)
    source.offer((a, 1))
    running = taken(lanes, 0)
    before, after = running.table, table([bound()])
    lanes.give_tables([(a, after)])
    assert running.table is before
    source.offer((a, 1))
    following = lanes.take(0, running)
    assert following is not None
    assert following.table is after


@pytest.mark.parametrize("state", [UnitState.BACKOFF, UnitState.HALTED])
def test_what_waits_or_halted_is_tried_at_once_by_the_new_rule(clock: Clock, state: UnitState) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    a = unit("a", lane=0)
    source.offer((a, 2))
    failed = taken(lanes, 0)
    if state is UnitState.HALTED:
        lanes.halt(0, failed, "refused")
    else:
        lanes.give_back(0, failed, delay=1_000.0, error="refused")
    after = table([bound()])
    lanes.give_tables([(a, after)])
    again = taken(lanes, 0)
    assert (again, again.table, a.error) == (failed, after, None)


@pytest.mark.parametrize("alike", [False, True])
def test_a_new_handler_gets_no_rest_of_a_batch_by_the_rules_of_before(clock: Clock, *, alike: bool) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    a = unit("a", lane=0)
    source.offer((a, 3))
    failed = taken(lanes, 0)
    failed.finish_records(1)
    lanes.give_back(0, failed, delay=1_000.0, error="refused")
    after = table([bound()], **({} if alike else {"filter": "id > 1"}))
    lanes.give_tables([(a, after)])
    again = taken(lanes, 0)
    assert (again is failed, again.table) == (alike, after)
    assert offsets(again) == ([0, 1, 2] if alike else [1, 2])
    if not alike:
        assert again.ruled_by is after
        assert (lanes.lanes[0].records, a.account.records) == (2, 2)
    lanes.finish(0, again)
    assert (lanes.lanes[0].records, a.account.records) == (0, 0)


def a_run(handler: BoundHandler, total: int, done: int) -> HandlerRun:
    run = HandlerRun(handler, 0, total)
    run.done, run.attempt, run.splitting, run.error = done, 5, True, RuntimeError()
    if done == total:
        run.ends = []
    return run


def test_a_handler_that_stays_goes_on_where_it_was_with_all_its_attempts() -> None:
    mine, other = bound("mine"), bound("other")
    first, second = a_run(mine, 10, 4), a_run(other, 10, 10)
    runs = rebound([mine, other], 10, [(mine, first), (other, second)])
    assert runs == [first, second]
    assert (first.done, first.attempt, first.splitting, first.error) == (4, 1, False, None)
    assert second.finished


def test_a_new_handler_gets_the_whole_batch_and_one_that_is_gone_none() -> None:
    mine, new = bound("mine"), bound("new")
    runs = rebound([new], 10, [(mine, a_run(mine, 10, 4))])
    assert [(run.name, run.done, run.finished) for run in runs] == [("new", 0, False)]


def test_two_handlers_of_one_name_keep_their_own_runs() -> None:
    one, two = bound("same"), bound("same")
    first, second = a_run(one, 10, 1), a_run(two, 10, 2)
    assert rebound([two, one], 10, [(one, first), (two, second)]) == [second, first]


def test_a_handler_with_other_options_goes_on_by_its_name() -> None:
    old, new = bound("sql"), bound("sql")
    run = a_run(old, 10, 4)
    assert rebound([new], 10, [(old, run)]) == [run]
    run.bind(new, 0)
    assert run.handler is new.of(0)


def test_units_share_no_account() -> None:
    a, b = Unit(table([]), 0), Unit(table([]), 0)
    assert a.account is not b.account
