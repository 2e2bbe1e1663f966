"""When the fetcher lets the processors get on before it polls again."""

from __future__ import annotations

import math

import pytest
from building import Clock, unit
from lane_building import Source, lanes_of, taken

from worker.fetching.backpressure import PollPause

LANES = 2


class Commits:
    under_way = False


class Worker:
    """Lanes and what puts off polls, without a worker's threads. Its batches took `seconds` so far."""

    def __init__(self, *, seconds: float = 0.001, work_stealing: bool = True) -> None:
        self.clock = Clock()
        self.lanes = lanes_of(self.clock, LANES, work_stealing=work_stealing)
        self.source = Source(self.lanes)
        self.commits = Commits()
        self.busy = 1.0
        self.pause = PollPause(self.lanes, self.commits, self.clock, lambda: self.clock.now * self.busy)
        for _ in range(1_000):
            self.offer(1, "a")
            work = taken(self.lanes, 0)
            self.clock.now += seconds
            self.lanes.finish(0, work)
        self.pause.polled()
        self._polled = self.clock.now

    def offer(self, records: int, *names: str, lane: int | None = None) -> None:
        """So many records of each of these tables."""
        homes = [place % LANES if lane is None else lane for place in range(len(names))]
        units = [unit(name, lane=home) for name, home in zip(names, homes, strict=True)]
        assert self.source.offer(*((each, records) for each in units))

    def waits(self, seconds: float) -> bool:
        """Whether so long after a poll the next one is put off."""
        self.clock.now = self._polled + seconds
        return self.pause.goes_on


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_it_waits_while_more_is_queued_than_the_processors_will_get_to_soon(worker: Worker) -> None:
    assert not worker.waits(0.001)
    worker.offer(2_000, *"abcde")
    assert not worker.waits(0.001), "few records"
    worker.offer(1, "f")
    assert worker.waits(0.001)
    assert worker.waits(0.4)


def test_it_goes_on_as_soon_as_a_processor_might_be_without_work(worker: Worker) -> None:
    worker.offer(4_000, *"abcde")
    assert worker.waits(0.4)
    taken(worker.lanes, 0)
    assert not worker.waits(0.4), "four tables are ready: two for each processor, and no more"


def test_it_polls_in_time_whatever_is_queued(worker: Worker) -> None:
    """The group learns from polls that the worker is there, and the worker what it has to give up."""
    worker.offer(4_000, *"abcde")
    assert worker.waits(0.4)
    assert not worker.waits(0.6)


def test_calls_that_take_long_get_fuller_batches_by_more_records() -> None:
    """Of a handler that commits, sends or writes a file the time goes into the call, whatever it holds."""
    worker = Worker(seconds=0.01)
    worker.offer(4_000, *"abcde")
    assert worker.waits(0.01)
    assert not worker.waits(0.03)


def test_so_they_do_among_many_quick_ones(worker: Worker) -> None:
    """Then the interpreter is not what all wait for, however many batches are quick."""
    worker.busy = 0.8
    worker.pause.polled()
    worker.offer(4_000, *"abcde")
    assert not worker.waits(0.03)


def test_the_answer_to_a_commit_does_not_wait_for_long(worker: Worker) -> None:
    worker.offer(4_000, *"abcde")
    worker.commits.under_way = True
    assert worker.waits(0.2)
    assert not worker.waits(0.3)
    worker.commits.under_way = False
    assert worker.waits(0.3)


def test_what_lets_batches_begin_does_not_wait(worker: Worker) -> None:
    worker.offer(4_000, *"abcde")
    worker.lanes.trust(worker.clock.now)
    assert not worker.waits(0.03)
    worker.lanes.trust(math.inf)
    assert worker.waits(0.03)


def test_without_work_stealing_no_lane_is_left_without_records_for_others() -> None:
    worker = Worker(work_stealing=False)
    worker.offer(3_000, *"abcde", lane=0)
    assert not worker.waits(0.03)
    worker.offer(1, "f", "g", lane=1)
    assert worker.waits(0.03)
