"""A partition is read only so far beyond its first unfinished record, and on when that is finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from building import configuration
from members import RECORDS, Member
from structlog.testing import capture_logs

from offsets.run import Run
from worker.fetching.backpressure import MaxAhead
from worker.units.assigned_partition import Assignment

both: Any = pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])


def come(bound: MaxAhead, *assignments: Assignment) -> None:
    """These bring records, and the fetcher goes round."""
    list(bound.records([(each, []) for each in assignments]))
    bound.between_polls(0.0)


@both
def test_only_the_partition_of_the_unfinished_record_is_paused_until_that_is_finished(
    member: Callable[[str], Member], strategy: str
) -> None:
    it = member(strategy)
    bound = MaxAhead(it.pauses, 10)
    stuck, well = it.come(0, 1)
    first = stuck.tracker.register([0])
    rest = stuck.tracker.register(list(range(1, 9)))
    rest.finish(list(range(1, 9)))
    come(bound, stuck, well)
    assert it.pauses.why(stuck) is None
    stuck.tracker.register([9]).finish([9])
    with capture_logs() as logs:
        come(bound, stuck, well)
        come(bound, stuck, well)
    [told] = [line for line in logs if line["log_level"] == "warning"]
    assert (told["event"], told["first_unfinished"], told["max_ahead"]) == ("max_ahead_reached", 0, 10)
    assert (it.pauses.why(stuck), it.pauses.why(well)) == ("max_ahead", None)
    assert it.read({1: RECORDS}) == {1: RECORDS}
    assert it.reads_nothing()
    bound.between_polls(0.0)
    assert it.pauses.of("max_ahead")
    first.finish([0])
    with capture_logs() as logs:
        bound.between_polls(0.0)
    assert [line["event"] for line in logs if line["log_level"] == "info"] == ["max_ahead_over"]
    assert not it.pauses.of("max_ahead")
    assert it.read({0: RECORDS}) == {0: RECORDS}


@both
def test_full_lanes_that_get_room_again_do_not_let_it_be_read(
    member: Callable[[str], Member], strategy: str
) -> None:
    it = member(strategy)
    bound = MaxAhead(it.pauses, 2)
    [stuck] = it.come(0)
    run = stuck.tracker.register([0, 1])
    it.pauses.pause()
    come(bound, stuck)
    it.pauses.resume()
    assert it.reads_nothing()
    run.finish([0, 1])
    bound.between_polls(0.0)
    assert it.read({0: RECORDS}) == {0: RECORDS}


@both
def test_a_partition_that_left_while_it_was_paused_is_read_when_it_comes_back(
    member: Callable[[str], Member], strategy: str
) -> None:
    it = member(strategy)
    bound = MaxAhead(it.pauses, 2)
    [stuck] = it.come(0)
    stuck.tracker.register([0, 1])
    come(bound, stuck)
    it.leave(0)
    bound.revoked({stuck})
    assert not it.pauses.of("max_ahead")
    it.come(0)
    assert it.read({0: RECORDS}) == {0: RECORDS}


def test_a_bound_that_is_raised_lets_it_be_read_at_once(member: Callable[[str], Member]) -> None:
    it = member("cooperative-sticky")
    bound = MaxAhead(it.pauses, 2)
    [stuck] = it.come(0)
    stuck.tracker.register([0, 1])
    come(bound, stuck)
    bound.adopt(configuration(max_ahead=3))
    bound.between_polls(0.0)
    assert it.read({0: RECORDS}) == {0: RECORDS}


def test_a_log_that_is_counted_anew_is_read(member: Callable[[str], Member]) -> None:
    it = member("cooperative-sticky")
    bound = MaxAhead(it.pauses, 2)
    [stuck] = it.come(0)
    run: Run = stuck.tracker.register([7, 8])
    come(bound, stuck)
    stuck.restart_at(0)
    bound.between_polls(0.0)
    assert it.read({0: RECORDS}) == {0: RECORDS}
    assert run.unfinished == 2
