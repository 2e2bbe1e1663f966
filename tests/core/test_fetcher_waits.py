"""When the fetcher lets the processors get on before it polls again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from building import Clock, assignment, chunk, configuration, delivery, record, unit

from worker.fetching.fetcher import Fetcher
from worker.lanes.lanes import Lanes
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

LANES = 2


class Worker:
    """Its parts, without its threads."""

    def __init__(self, folder: Path) -> None:
        settings = configuration(lanes={"count": LANES}, checkpoint={"directory": str(folder)}, http=None)
        self.clock = Clock()
        self.parts = Components(settings, clock=self.clock, fail=pytest.fail, stop=threading.Event())
        self.lanes: Lanes = self.parts.lanes
        self.lanes.trust(float("inf"))  # as after a commit
        self.fetcher: Fetcher = self.parts.fetcher
        self.of: Assignment = assignment()
        self.next = 0
        self.fetcher._polled = self.clock.now

    def offer(self, records: int, *names: str) -> None:
        """So many records of each of these tables."""
        parts = []
        for place, name in enumerate(names):
            made = [record(self.next + n, name) for n in range(records)]
            self.next += records
            parts.append((unit(name, lane=place % LANES), chunk(self.of, made)))
        assert self.lanes.offer(delivery(*parts))

    @property
    def waits(self) -> bool:
        return self.fetcher._processors_are_behind()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(tmp_path)
    yield worker
    worker.parts.consumer.close()


def test_it_waits_while_more_is_queued_than_the_processors_will_get_to_soon(worker: Worker) -> None:
    assert not worker.waits
    worker.offer(2_500, "a", "b", "c")
    assert not worker.waits, "few records"
    worker.offer(2_501, "d")
    assert worker.waits


def test_it_goes_on_as_soon_as_a_processor_might_be_without_work(worker: Worker) -> None:
    worker.offer(4_000, "a", "b", "c")
    assert worker.waits
    assert worker.lanes.take(0) is not None
    assert not worker.waits, "two tables are ready, and who is through with one may need another"


def test_it_polls_in_time_whatever_is_queued(worker: Worker) -> None:
    """The group learns from polls that the worker is there, and the worker what it has to give up."""
    worker.offer(4_000, "a", "b", "c")
    worker.clock.now += 0.9
    assert worker.waits
    worker.clock.now += 0.2
    assert not worker.waits
