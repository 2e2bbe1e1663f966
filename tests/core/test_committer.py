"""The committer: what goes wrong is an error of that commit, told, tried again, and over when it is."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka import KafkaError
from core.building import Clock, assignment
from memory_store import MemoryStore, loaded

from offsets.stores.file import FileStore
from offsets.stores.interface import CheckpointError
from offsets.stores.kafka import refusal
from offsets.stores.polled import CommitInterrupted
from offsets.tracker import OffsetTracker
from offsets.types import Checkpoint, Mark, OffsetRange, TopicPartition
from worker.observing.metrics import Metrics
from worker.partitions.committer import Committer
from worker.units.assigned_partition import Assignment, Assignments


class Group(MemoryStore):
    """Stands for Kafka: takes commits, or raises `fault`."""

    name = "kafka"
    fault: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.commits = itertools.count(1)

    def save(self, checkpoints: Mapping[TopicPartition, Checkpoint]) -> dict[TopicPartition, Mark]:
        if self.fault is not None:
            raise self.fault
        super().save(checkpoints)
        number = next(self.commits)
        return {place: Mark(checkpoint.offset, number) for place, checkpoint in checkpoints.items()}


class Site:
    """Two partitions, a file, and Kafka."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = assignment(0), assignment(1)
        self.assignments = Assignments()
        self.assignments.add([self.first, self.second])
        self.local = FileStore(folder / "state", "replica")
        self.kafka = Group()
        self.clock = Clock()
        self.stopped: list[BaseException] = []
        self.committer = Committer(
            self.assignments,
            self.local,
            self.kafka,
            interval=0.01,
            metrics=Metrics(),
            clock=self.clock,
            fail=self.stopped.append,
        )

    @property
    def error(self) -> str | None:
        return self.committer.status().last_error

    @property
    def last_success(self) -> str | None:
        return self.committer.status().last_success

    def finish(self, of: Assignment, count: int) -> None:
        """So many more records of the partition."""
        begin = of.tracker.next_offset or 0
        of.tracker.register(range(begin, begin + count)).finish(range(begin, begin + count))

    def in_kafka(self, of: Assignment) -> Checkpoint | None:
        return loaded(self.kafka, [of.partition]).get(of.partition)

    def in_file(self, of: Assignment) -> Checkpoint | None:
        return loaded(self.local, [of.partition]).get(of.partition)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_any_error_of_a_store_is_told_and_tried_again_and_ends_nothing(site: Site) -> None:
    site.finish(site.first, 5)
    for fault in (CheckpointError("no answer"), ValueError("ranges must ascend"), RuntimeError("closed")):
        site.kafka.fault = fault
        assert not site.committer.commit()
        assert str(fault) in (site.error or "")
        assert not site.committer.in_kafka
    assert site.last_success is None
    assert site.in_file(site.first) == Checkpoint(5)
    site.kafka.fault = None
    assert site.committer.commit()
    assert site.in_kafka(site.first) == Checkpoint(5)
    assert site.error is None
    assert site.last_success is not None


def test_an_error_of_the_file_keeps_nothing_from_kafka(site: Site) -> None:
    folder = site.local.path.parent
    folder.touch()
    site.finish(site.first, 5)
    assert site.committer.commit()
    assert site.in_kafka(site.first) == Checkpoint(5)
    assert str(folder) in (site.error or "")
    folder.unlink()
    assert site.committer.commit()
    assert site.in_file(site.first) == Checkpoint(5)
    assert site.error is None


def test_a_partition_whose_state_cannot_be_told_keeps_no_other_from_its_commit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = OffsetTracker._settle

    def broken(tracker: OffsetTracker) -> int | None:
        if tracker is site.first.tracker:
            raise IndexError("of the first")
        return look(tracker)

    site.finish(site.first, 3)
    site.finish(site.second, 7)
    with monkeypatch.context() as patch:
        patch.setattr(OffsetTracker, "_settle", broken)
        site.committer.commit()
        assert site.in_kafka(site.second) == Checkpoint(7)
        assert "IndexError: of the first" in (site.error or "")
    site.committer.commit()
    assert site.in_kafka(site.first) == Checkpoint(3)
    assert site.error is None


def test_what_finishes_in_two_partitions_between_the_looks_at_them_is_committed_of_both(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row, and then the statement behind it: repeated alone, the row would stay in an emptied table."""
    row, statement = site.first.tracker.register([0, 1]), site.second.tracker.register([0, 1])
    look = OffsetTracker._settle

    def finished_before(tracker: OffsetTracker) -> int | None:
        if tracker is site.second.tracker:
            row.finish([1])
            statement.finish([1])
        return look(tracker)

    monkeypatch.setattr(OffsetTracker, "_settle", finished_before)
    site.committer.commit()
    assert site.in_file(site.first) == site.in_file(site.second) == Checkpoint(0, (OffsetRange(1, 2),))


def test_its_thread_outlives_what_goes_wrong(site: Site) -> None:
    site.kafka.fault = ValueError("ranges must ascend")
    site.finish(site.first, 5)
    site.clock.now += 1
    site.committer.start()
    try:
        while site.error is None:
            assert site.committer.is_alive()
        site.kafka.fault = None
        while site.error is not None:
            assert site.committer.is_alive()
    finally:
        site.committer.stop()
        site.committer.join(5)
    assert site.in_kafka(site.first) == Checkpoint(5)
    assert site.stopped == []


def test_an_error_is_over_when_what_failed_has_left(site: Site) -> None:
    """Another member commits it now; nothing here is left to be tried again."""
    site.committer.commit()
    site.finish(site.first, 5)
    site.kafka.fault = CheckpointError("refused")
    assert not site.committer.commit([site.first])
    site.assignments.remove([site.first.partition])
    site.kafka.fault = None
    assert site.committer.commit()
    assert site.error is None


def test_an_error_of_one_partition_is_not_over_because_another_leaves_with_nothing_new(site: Site) -> None:
    site.committer.commit()
    site.finish(site.first, 5)
    site.kafka.fault = CheckpointError("refused")
    site.committer.commit()
    site.kafka.fault = None
    site.committer.commit([site.second])
    assert site.error == "refused"


def test_a_commit_that_a_rebalance_interrupts_is_neither_a_failure_nor_a_success(site: Site) -> None:
    site.finish(site.first, 5)
    site.kafka.fault = CommitInterrupted("a rebalance started before Kafka answered")
    assert not site.committer.commit()
    assert site.error is None
    assert site.last_success is None
    site.kafka.fault = None
    assert site.committer.commit()
    assert site.last_success is not None


def test_a_partition_that_is_lost_while_the_file_is_written_is_not_committed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.finish(site.first, 5)
    site.finish(site.second, 7)
    save = site.local.save

    def lose(*args: Any) -> None:
        save(*args)
        site.first.closed = True
        site.assignments.remove([site.first.partition])

    monkeypatch.setattr(site.local, "save", lose)
    site.committer.commit()
    places = [site.first.partition, site.second.partition]
    assert loaded(site.kafka, places) == {site.second.partition: Checkpoint(7)}, (
        "its next owner may be further"
    )


def test_a_partition_that_is_lost_when_its_first_commit_begins_is_not_committed(site: Site) -> None:
    """It counts as lost, not as one whose last commit is made before it leaves."""
    lost = site.first

    class LostWhileRead(OffsetTracker):
        @property
        def next_offset(self) -> int | None:
            if site.committer._lock.locked():
                lost.closed = True
            return super().next_offset

    lost.tracker = LostWhileRead(7, ())
    site.committer.pace(1e6)
    site.committer.start()
    site.committer.wake()
    until(lambda: lost.closed)
    site.committer.stop()
    site.committer.join(30)
    assert not site.committer.is_alive()
    assert site.in_kafka(lost) is None, "its next owner may be further"
    assert site.stopped == []


@pytest.mark.parametrize(
    ("code", "level"),
    [
        (KafkaError.ILLEGAL_GENERATION, "info"),
        (KafkaError.REBALANCE_IN_PROGRESS, "info"),
        (KafkaError.UNKNOWN_MEMBER_ID, "error"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "error"),
    ],
)
def test_a_commit_that_comes_too_late_in_a_rebalance_is_no_alarm(site: Site, code: int, level: str) -> None:
    site.finish(site.first, 5)
    site.kafka.fault = refusal(KafkaError(code))
    with structlog.testing.capture_logs() as logs:
        assert not site.committer.commit()
    assert [(each["event"], each["log_level"]) for each in logs] == [("checkpoint_failed", level)]
    assert site.error is not None


def test_an_error_that_stays_is_told_once_a_minute(site: Site) -> None:
    site.finish(site.first, 5)
    refused = refusal(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with structlog.testing.capture_logs() as logs:
        for fault in (refused, refused, CheckpointError("another"), CheckpointError("another")):
            site.kafka.fault = fault
            assert not site.committer.commit()
        assert [each["error"] for each in logs] == [str(refused), "another"]
        site.clock.now += 61
        assert not site.committer.commit()
        assert len(logs) == 3
        site.kafka.fault = None
        assert site.committer.commit()
        site.finish(site.first, 1)
        site.kafka.fault = CheckpointError("another")  # anew
        assert not site.committer.commit()
    assert [each["event"] for each in logs[3:]] == ["checkpoint_works_again", "checkpoint_failed"]


def test_the_file_knows_which_commit_kafka_holds(site: Site) -> None:
    site.first.mark = Mark(3, 77)  # what it began from

    def known() -> Mark | None:
        return site.local.load_entries([site.first.partition])[site.first.partition].acknowledged

    site.kafka.fault = CheckpointError("no answer")
    site.finish(site.first, 5)
    site.committer.commit()
    assert known() == Mark(3, 77)
    site.kafka.fault = None
    site.committer.commit()
    assert known() == Mark(5, 1)
    site.kafka.fault = CommitInterrupted("a rebalance")
    site.finish(site.first, 2)
    site.committer.commit()
    assert site.in_file(site.first) == Checkpoint(7)
    assert known() == Mark(5, 1)


def test_an_acknowledgement_that_could_not_be_written_is_written_later(site: Site) -> None:
    site.finish(site.first, 5)
    folder = site.local.path.parent
    folder.touch()
    site.committer.commit()
    folder.unlink()
    site.committer.commit()
    entry = site.local.load_entries([site.first.partition])[site.first.partition]
    assert (entry.checkpoint, entry.acknowledged) == (Checkpoint(5), Mark(5, 1))


def test_the_topics_id_goes_with_each_checkpoint(site: Site) -> None:
    site.first.topic_id, site.first.began_with = "the-id", 2
    site.finish(site.first, 5)
    site.committer.commit()
    assert site.in_file(site.first) == site.in_kafka(site.first) == Checkpoint(5, (), "the-id", 2)


def test_a_shorter_interval_counts_from_the_last_commit_at_once(site: Site) -> None:
    site.committer.pace(3600.0)
    site.finish(site.first, 3)
    site.committer.start()
    site.clock.now += 2.0
    site.committer.pace(1.0)
    end = time.monotonic() + 3  # the thread looks by itself every five seconds
    while site.in_kafka(site.first) != Checkpoint(3):
        assert time.monotonic() < end
        time.sleep(0.01)
    site.committer.stop()
    site.committer.join(10)
    assert not site.stopped


def test_where_partitions_begin_is_committed_until_kafka_takes_it(site: Site) -> None:
    """Long before the interval is over, for nothing of them is handled before."""
    site.committer.pace(1e6)
    site.first.tracker.reach(7)
    site.kafka.fault = CheckpointError("no answer")
    site.committer.start()
    site.committer.wake()
    until(lambda: site.error == "no answer")
    assert not site.first.may_begin
    site.kafka.fault = None
    until(lambda: site.first.may_begin)
    assert site.in_kafka(site.first) == Checkpoint(7)
    until(lambda: site.error is None)
    site.committer.stop()
    site.committer.join(30)
    assert not site.committer.is_alive()


def test_another_threads_commit_that_takes_long_is_no_silence_of_this_thread(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of the fetcher's in a rebalance, while the group's coordinator is away."""
    monkeypatch.setattr("worker.partitions.committer._RETRY_SECONDS", 0.01)
    site.committer._lock.acquire()
    site.committer.start()
    for _ in range(3):
        site.clock.now += 100
        until(lambda: site.committer.beat == site.clock.now)
    site.committer._lock.release()
    site.committer.stop()
    site.committer.join(30)
    assert not site.committer.is_alive()


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
