"""When the fetcher lets the processors get on before it polls again."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from building import Clock, assignment, chunk, configuration, delivery, record, unit

from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint, TopicPartition
from worker.fetching.fetcher import Fetcher
from worker.lanes.lanes import Lanes
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

LANES = 2
PLACE = TopicPartition("t", 0)


class Worker:
    """Its parts, without its threads. Its batches take `seconds`."""

    def __init__(self, folder: Path, *, seconds: float = 0.001, work_stealing: bool = True) -> None:
        settings = configuration(
            lanes={"count": LANES, "work_stealing": work_stealing},
            checkpoint={"directory": str(folder)},
            http=None,
        )
        self.clock = Clock()
        self.parts = Components(settings, clock=self.clock, fail=pytest.fail, stop=threading.Event())
        self.lanes: Lanes = self.parts.lanes
        self.lanes.trust(math.inf)  # as after a commit
        self.fetcher: Fetcher = self.parts.fetcher
        self.of: Assignment = assignment()
        self.next = 0
        for _ in range(100):
            self.offer(1, "a")
            work = self.lanes.take(0)
            assert work is not None
            self.clock.now += seconds
            self.lanes.finish(0, work)
        self.fetcher._polled = self.clock.now

    def offer(self, records: int, *names: str, lane: int | None = None) -> None:
        """So many records of each of these tables."""
        parts = []
        for place, name in enumerate(names):
            made = [record(self.next + n, name) for n in range(records)]
            self.next += records
            home = place % LANES if lane is None else lane
            parts.append((unit(name, lane=home), chunk(self.of, made)))
        assert self.lanes.offer(delivery(*parts))

    def waits(self, seconds: float) -> bool:
        """Whether so long after a poll the next one is put off."""
        self.clock.now = self.fetcher._polled + seconds
        return self.fetcher._processors_are_behind()

    def close(self) -> None:
        self.parts.consumer.close()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(tmp_path)
    yield worker
    worker.close()


def test_it_waits_while_more_is_queued_than_the_processors_will_get_to_soon(worker: Worker) -> None:
    assert not worker.waits(0.001)
    worker.offer(2_500, "a", "b", "c")
    assert not worker.waits(0.001), "few records"
    worker.offer(2_501, "d")
    assert worker.waits(0.001)
    assert worker.waits(0.5)


def test_it_goes_on_as_soon_as_a_processor_might_be_without_work(worker: Worker) -> None:
    worker.offer(4_000, "a", "b", "c")
    assert worker.waits(0.5)
    assert worker.lanes.take(0) is not None
    assert not worker.waits(0.5), "two tables are ready, and who is through with one may need another"


def test_it_polls_in_time_whatever_is_queued(worker: Worker) -> None:
    """The group learns from polls that the worker is there, and the worker what it has to give up."""
    worker.offer(4_000, "a", "b", "c")
    assert worker.waits(0.9)
    assert not worker.waits(1.1)


def test_calls_that_take_long_get_fuller_batches_by_more_records(tmp_path: Path) -> None:
    """Of a handler that commits, sends or writes a file the time goes into the call, whatever it holds."""
    worker = Worker(tmp_path, seconds=0.01)
    worker.offer(4_000, "a", "b", "c")
    assert not worker.waits(0.03)
    worker.close()


def test_the_answer_to_a_commit_does_not_wait_for_long(worker: Worker) -> None:
    worker.offer(4_000, "a", "b", "c")

    def commit() -> None:
        with suppress(CheckpointError):
            worker.parts.kafka.save({PLACE: Checkpoint(3)})

    committing = threading.Thread(target=commit)
    committing.start()
    while not worker.parts.kafka.under_way:
        time.sleep(0.001)
    assert not worker.waits(0.3)
    worker.parts.kafka.interrupt()
    committing.join()
    assert worker.waits(0.3)


def test_nor_does_what_lets_batches_begin(worker: Worker) -> None:
    worker.offer(4_000, "a", "b", "c")
    worker.lanes.trust(worker.clock.now)
    assert not worker.waits(0.03)


def test_without_work_stealing_no_lane_is_left_without_records_for_others(tmp_path: Path) -> None:
    worker = Worker(tmp_path, work_stealing=False)
    worker.offer(3_000, "a", "b", "c", "d", lane=0)
    assert not worker.waits(0.03)
    worker.offer(1, "e", lane=1)
    assert worker.waits(0.03)
    worker.close()
