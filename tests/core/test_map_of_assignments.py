"""Workers of one group whose folders hold a map of finished offsets: when what it remembers counts."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

import confluent_kafka
import pytest
from building import Clock, configuration
from confluent_kafka import KafkaError, KafkaException
from members import RECORDS
from structlog.testing import capture_logs

from offsets.finished import read
from offsets.types import TopicPartition
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

PLACE = TopicPartition("t", 0)


class Member:
    """A worker's parts, without its threads."""

    def __init__(self, servers: str, folder: Path) -> None:
        settings = configuration(
            kafka={
                "bootstrap_servers": servers,
                "group_id": folder.parent.name,
                "topics": ["t"],
                "properties": {"log_level": 2},
            },
            checkpoint={"directory": str(folder)},
            on_undecodable="dead_letter",
            dead_letter={"topic": "dead"},
        )
        self.folder = folder
        self.parts = Components(settings, clock=Clock(), fail=pytest.fail, stop=threading.Event())
        self.parts.kafka.attach(self.parts.consumer)
        self.where = [confluent_kafka.TopicPartition(*PLACE)]
        self.started = ""

    def come(self) -> Assignment:
        """The partition is assigned, and the committer's thread commits where it begins."""
        with capture_logs() as logged:
            self.parts.rebalancer.on_assign(self.parts.consumer, self.where)
        (told,) = (line for line in logged if line["event"] == "partition_assigned")
        self.started = f"{told['source']} {told['start']} +{told['finished_ahead']}"
        self.parts.committer.commit()
        [assignment] = self.parts.assignments.current()
        return assignment

    def fetch(self) -> None:
        """All records of the partition, which wait in a lane then."""
        assignment = self.parts.assignments.current()[0]
        while assignment.consumed < RECORDS:
            self.poll()
            self.parts.committer.commit()

    def poll(self) -> None:
        """What the fetcher does in one round."""
        self.parts.gate.between_polls(self.parts.lanes._clock())
        self.parts.receiver.receive(self.parts.consumer.consume(100, 0.1))

    def named(self) -> str | None:
        """The window that the file's checkpoint counts on."""
        entry = self.parts.local.load_entries([PLACE]).get(PLACE)
        return None if entry is None else entry.window

    def killed(self) -> Path:
        """Its folder, as the next process finds it: in this one its lock is still held."""
        copy = self.folder.with_name(f"{self.folder.name}-left")
        shutil.rmtree(copy, ignore_errors=True)
        return shutil.copytree(self.folder, copy)


class NoAnswers:
    """A consumer whose commits are not answered. `arrive`: they reach the group all the same."""

    def __init__(self, consumer: confluent_kafka.Consumer, *, arrive: bool) -> None:
        self._consumer, self._arrive = consumer, arrive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def commit(self, **how: Any) -> NoReturn:
        if self._arrive:
            self._consumer.commit(**how)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.fixture
def members(mock_servers: str, tmp_path: Path) -> Iterator[list[Member]]:
    made = [Member(mock_servers, tmp_path / name) for name in ("first", "second")]
    yield made
    for each in made:
        each.parts.consumer.close()


def registered(assignment: Assignment) -> None:
    """Twenty records came, of which all but the first are finished, after the last checkpoint."""
    assignment.tracker.register(range(RECORDS)).finish(range(1, RECORDS))


def test_what_finished_after_the_last_checkpoint_is_known_to_the_next_process(
    members: list[Member], mock_servers: str
) -> None:
    first, _ = members
    assignment = first.come()
    registered(assignment)
    first.parts.committer.commit()
    assignment.tracker.finish([0])
    after = Member(mock_servers, first.killed())
    after.come()
    assert after.started == f"file {RECORDS} +0"
    after.parts.consumer.close()


def test_a_commit_whose_answer_never_came_is_known_for_its_own(
    members: list[Member], mock_servers: str
) -> None:
    first, _ = members
    assignment = first.come()
    registered(assignment)
    first.parts.committer.commit()
    earlier = first.parts.local.path.read_bytes()
    assignment.tracker.finish([0])
    first.parts.committer.commit()
    left = first.killed()
    (left / "checkpoint.json").write_bytes(earlier)
    after = Member(mock_servers, left)
    after.come()
    assert after.started == f"file {RECORDS} +0"
    after.parts.consumer.close()


@pytest.mark.parametrize(
    "committed", [True, False], ids=["after a commit", "of a group that never committed"]
)
def test_what_another_member_may_have_repeated_comes_again(
    members: list[Member], mock_servers: str, committed: bool
) -> None:
    first, second = members
    assignment = first.come()
    if committed:
        registered(assignment)
        first.parts.committer.commit()
        assignment.tracker.finish([0])
    else:
        first.fetch()
        assignment.tracker.finish(range(RECORDS))
    left = first.killed()
    first.parts.consumer.incremental_unassign(first.where)
    second.come()
    second.fetch()
    second.parts.consumer.incremental_unassign(second.where)
    after = Member(mock_servers, left)
    after.come()
    assert after.started == ("file 0 +19" if committed else "file 0 +0"), "which Kafka says, too"
    after.parts.consumer.close()


@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_a_partition_that_leaves_takes_its_window_along(members: list[Member], how: str) -> None:
    first, _ = members
    assignment = first.come()
    registered(assignment)
    first.parts.committer.commit()
    name = first.named()
    assert name is not None
    assert read(first.killed(), [name])
    leave = first.parts.rebalancer.on_revoke if how == "revoked" else first.parts.rebalancer.on_lost
    leave(first.parts.consumer, first.where)
    first.parts.consumer.incremental_unassign(first.where)
    assert read(first.killed(), [name]) == {}, "what finishes too late is not remembered"
    assert (first.named() is None) == (how == "revoked")


def test_a_tracker_that_counts_anew_and_a_topic_made_anew_have_windows_of_their_own(
    members: list[Member],
) -> None:
    first, _ = members
    assignment = first.come()
    registered(assignment)
    former = assignment.tracker
    windows = [former.window]
    assignment.restart_at(7)
    assert former.window is None, "what it counted is of other records"
    windows.append(assignment.tracker.window)
    new = first.parts.new_assignments.succeed(assignment, "another-id")
    windows.append(new.tracker.window)
    assert len(set(windows)) == 3
    assert assignment.tracker.window is None
    first.parts.consumer.incremental_unassign(first.where)


def test_where_it_began_is_remembered_before_the_first_record_is_handled(members: list[Member]) -> None:
    first, _ = members
    assignment = first.come()
    assert assignment.start.offset == "earliest"
    assert first.named() is None
    handed: list[str | None] = []
    hand_over = first.parts.backpressure.hand_over
    first.parts.backpressure.hand_over = lambda *given, **named: (  # type: ignore[method-assign]
        handed.append(first.named()),
        hand_over(*given, **named),
    )[1]
    first.fetch()
    assert handed
    assert handed[0] is not None
    first.parts.consumer.incremental_unassign(first.where)


@pytest.mark.parametrize("first", ["earliest", "known"])
@pytest.mark.parametrize("arrive", [False, True], ids=["refused", "taken without an answer"])
def test_nothing_is_handled_before_kafka_has_taken_the_first_commit(
    members: list[Member], mock_servers: str, first: str, arrive: bool
) -> None:
    """Else a former owner that finds its own last commit in Kafka goes on from its map, and passes over what
    was repeated meanwhile."""
    former, other = members
    if first == "known":
        assignment = former.come()
        former.fetch()
        assignment.tracker.finish(range(RECORDS))
        left = former.killed()
        former.parts.consumer.incremental_unassign(former.where)
    other.parts.kafka.attach(cast(Any, NoAnswers(other.parts.consumer, arrive=arrive)))
    assignment = other.come()
    deadline = time.monotonic() + 60
    clock = cast(Clock, other.parts.lanes._clock)
    while other.parts.pauses.why(assignment) is None and time.monotonic() < deadline:
        other.poll()
        clock.now += 0.1
        assert other.parts.lanes.seen.queued == 0
    for _ in range(10):
        other.poll()
        other.parts.committer.commit()
    assert other.parts.lanes.seen.queued == 0
    assert other.parts.pauses.why(assignment) == "first_commit"
    assert "Timed out" in (other.parts.committer.status().last_error or "")
    if first == "known":
        after = Member(mock_servers, left)
        after.come()
        assert after.started == ("file 0 +0" if arrive else f"file {RECORDS} +0")
        after.parts.consumer.close()
    other.parts.kafka.attach(other.parts.consumer)
    other.fetch()
    other.poll()
    assert other.parts.lanes.seen.queued == RECORDS
    assert other.parts.pauses.why(assignment) is None


def test_a_first_commit_that_is_not_taken_is_told_and_is_over_by_itself(members: list[Member]) -> None:
    member, _ = members
    clock = cast(Clock, member.parts.lanes._clock)
    consumer = member.parts.consumer
    member.parts.kafka.attach(cast(Any, NoAnswers(consumer, arrive=False)))
    member.come()
    while not member.parts.gate:
        member.poll()
    member.poll()
    member.parts.committer.commit()
    clock.now += 1
    with capture_logs() as logged:
        member.poll()
        assert [line["event"] for line in logged] == ["pauses_told"]
        logged.clear()
        clock.now += 5
        member.poll()
        member.poll()
    assert [(line["event"], line["partitions"]) for line in logged] == [("first_commit_missing", ["t[0]"])]
    (waiting,) = member.parts.assignments.current()
    assert member.parts.gate.uncommitted_seconds(waiting, clock.now) > 5
    member.parts.kafka.attach(consumer)
    member.fetch()
    member.poll()
    assert member.parts.gate.uncommitted_seconds(waiting, clock.now) == 0
