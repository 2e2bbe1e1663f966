"""Assigning and revoking partitions: everything finished is committed before a partition is given up. New
partitions, recreated topics, and the records of former topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import confluent_kafka
from confluent_kafka import Consumer

from handlers.logs import get_logger
from offsets.finished import FinishedMap
from offsets.restore import Start
from offsets.topic_ids import TopicIds
from offsets.types import Checkpoint, TopicPartition
from worker.formats.interface import Format
from worker.kafka.errors import NOWHERE, Stopping
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.committer import Committer
from worker.partitions.stage import Stage
from worker.partitions.starts import Starts
from worker.units.assigned_partition import Assignment, Assignments, with_earlier

log = get_logger("rebalance")

_COMMIT_SECONDS = 180.0
"""The longest commit if the coordinator does not answer. librdkafka waits `socket.timeout.ms` for the answer,
then `session.timeout.ms` for a coordinator."""


@dataclass(eq=False)
class Rebalancer:
    """The consumer's rebalance callbacks. They run on the fetcher's thread, inside its polls.

    `withdraw`: makes the lanes forget assignments, and waits up to the given seconds for running batches.
    Returns the tables that still run. `release`: tells the handlers which partitions are revoked, and waits
    up to the given seconds for them."""

    starts: Starts
    _: KW_ONLY
    stages: Sequence[Stage]
    new_assignments: NewAssignments
    withdraw: Callable[[set[Assignment], float], list[str]]
    former: FormerRecords
    committer: Committer
    metrics: Metrics
    release: Callable[[Collection[tuple[str, int]], float], None]

    def __post_init__(self) -> None:
        self._assignments = self.new_assignments.assignments

    def subscribe(self, consumer: Consumer, topics: list[str]) -> None:
        """Join the group. Raises Stopping, KafkaException."""
        self.starts.begin(consumer)
        consumer.subscribe(topics, on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost)

    def on_assign(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        try:
            self._assign(consumer, [TopicPartition(p.topic, p.partition) for p in partitions])
        except Stopping:
            # confluent-kafka assigns them if this does not; their records would count as those of others. The
            # offset is the end, because librdkafka may fetch, on its own thread, before it pauses.
            at_end = [
                confluent_kafka.TopicPartition(each.topic, each.partition, confluent_kafka.OFFSET_END)
                for each in partitions
            ]
            self._fetch(consumer, at_end)
            consumer.pause(at_end)
            log.info("partitions_not_taken", partitions=len(partitions), reason="the worker stops")

    def _fetch(self, consumer: Consumer, places: list[confluent_kafka.TopicPartition]) -> None:
        (consumer.incremental_assign if self.starts.incremental else consumer.assign)(places)

    def _assign(self, consumer: Consumer, wanted: list[TopicPartition]) -> None:
        self.metrics.count("binlane_rebalances_total", "assign")
        self.committer.interrupt()
        topic_ids = self.starts.topic_ids({partition.topic for partition in wanted})
        starts, marks = self.starts.of(consumer, wanted, topic_ids)
        epoch = self._assignments.next_epoch()
        added: list[Assignment] = []
        places: list[confluent_kafka.TopicPartition] = []
        for partition in wanted:
            start = starts[partition]
            offset = self.starts.offset(consumer, partition, start)
            if 0 <= offset < NOWHERE:  # a kill before the first record must not start at a later end
                start = replace(start, offset=offset)
            assignment = self.new_assignments.make(partition, epoch, start)
            assignment.mark = marks.get(partition)
            added.append(assignment)
            places.append(confluent_kafka.TopicPartition(*partition, offset))
            log.info(
                "partition_assigned",
                partition=str(partition),
                start=str(start.offset),
                finished_ahead=sum(end - first for first, end in start.ahead),
                source=start.source,
                reason=start.reason,
            )
            if start.earlier is not None:
                self.new_assignments.recreated(assignment, start.earlier)
        self._fetch(consumer, places)
        self._assignments.balance(added)
        for stage in self.stages:
            stage.assigned(added)

    def on_revoke(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Take no more except former topics' records, wait for running batches, commit, forget the rest."""
        timeout = self.starts.configuration.revoke_timeout
        self.starts.alive(timeout + _COMMIT_SECONDS)
        end = time.monotonic() + timeout
        self.metrics.count("binlane_rebalances_total", "revoke")
        self.committer.interrupt()
        self.former.work_off(self._assigned(partitions), timeout, fetching=True)
        gone = self._close(partitions)
        left = self._forget(gone)
        running = self.withdraw(left, max(0.0, end - time.monotonic()))
        if running:
            log.warning(
                "revoke_timeout",
                tables=running,
                seconds=timeout,
                hint="the next owner processes their unfinished records again",
            )
        self.former.tell(gone)
        committed = self.committer.commit(gone) if gone else True
        for assignment in gone:
            assignment.tracker.end()  # before another worker owns it
        self._assignments.remove(assignment.partition for assignment in gone)
        if gone:
            self.release([a.partition for a in gone], max(0.0, end - time.monotonic()))
        log.info("partitions_revoked", partitions=[str(a.partition) for a in gone], committed=committed)

    def on_lost(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Another member may own them already: forget everything, commit nothing."""
        self.metrics.count("binlane_rebalances_total", "lost")
        self.committer.interrupt()
        gone = self._close(partitions)
        for assignment in gone:
            assignment.tracker.end()
        self.withdraw(self._forget(gone), 0.0)
        self.former.tell(gone)
        self._assignments.remove(assignment.partition for assignment in gone)
        if gone:
            self.release([a.partition for a in gone], 0.0)
        log.warning(
            "partitions_lost",
            partitions=[str(a.partition) for a in gone],
            hint="the group continued without this worker; the next owners repeat what was not committed",
        )

    def _forget(self, gone: list[Assignment]) -> set[Assignment]:
        """Make the stages forget these and their earlier assignments. Returns all of them."""
        left = with_earlier(gone)
        for stage in self.stages:
            stage.revoked(left)
        return left

    def _assigned(self, partitions: Iterable[confluent_kafka.TopicPartition]) -> list[Assignment]:
        return [a for p in partitions if (a := self._assignments.get(p.topic, p.partition)) is not None]

    def _close(self, partitions: Iterable[confluent_kafka.TopicPartition]) -> list[Assignment]:
        gone = self._assigned(partitions)
        for assignment in with_earlier(gone):
            assignment.closed = True
            if assignment.committed is not None:
                self.starts.forced.over(assignment.partition)
        return gone


_LOOK_SECONDS = 0.01


class FormerRecords:
    """Records of former topics. They are handled before a revocation and before a stop, or else logged."""

    def __init__(self, lanes: Lanes, offer: Callable[[], object], clock: Callable[[], float]) -> None:
        """`offer`: gives the lanes the records that they had no room for. On the fetcher's thread."""
        self._lanes = lanes
        self._offer = offer
        self._clock = clock
        self._told: set[Assignment] = set()
        self.lost = 0
        """Records that were not handled, and never will be."""

    def work_off(self, assignments: Iterable[Assignment], seconds: float, *, fetching: bool = False) -> None:
        """Wait until the records of these partitions' former topics are finished, except those of halted and
        paused tables. `fetching`: this is the fetcher's thread, so no other offers records to the lanes."""
        former, end = self._before(assignments), self._clock() + seconds
        while self._clock() < end and any(not each.forgotten and each.tracker.unfinished for each in former):
            if fetching:
                self._offer()
            if self._lanes.worked_off() or self._lanes.seen.dead_end():
                return
            time.sleep(_LOOK_SECONDS)

    def tell(self, assignments: Iterable[Assignment]) -> None:
        """Log the former topics' lost records: nothing more of these partitions is handled."""
        for assignment in self._before(assignments):
            if count := assignment.tracker.unfinished:
                self._told.add(assignment)
                self.lose(assignment, count, "not handled before the partition left or the worker stopped")

    def lose(self, assignment: Assignment, count: int, why: str) -> None:
        """Log that `count` of its records are lost, unless there are none."""
        if not count:
            return
        self.lost += count
        log.error(
            "former_records_lost",
            partition=str(assignment.partition),
            topic_id=assignment.topic_id,
            records_lost=count,
            hint=f"they were fetched before the topic was recreated, and {why}: Kafka no longer has them",
        )

    def _before(self, assignments: Iterable[Assignment]) -> set[Assignment]:
        found = set(assignments)
        return with_earlier(found) - found - self._told


@dataclass(eq=False)
class NewAssignments:
    """Makes assignments. Only on the fetcher's thread."""

    assignments: Assignments
    topic_ids: TopicIds
    finished_map: FinishedMap
    format_of: Callable[[str], Format]

    def make(self, partition: TopicPartition, epoch: int, start: Start) -> Assignment:
        made = Assignment(partition, epoch, start, self.format_of(partition.topic), self.finished_map)
        made.topic_id = start.topic_id  # an unknown id never replaces a known one
        return made

    def succeed(self, old: Assignment, topic_id: str) -> Assignment:
        """The topic was recreated while it was read: read its partition from the new topic's start. The
        earlier records keep their assignment."""
        tracker = old.tracker
        known = old.in_kafka or Checkpoint(tracker.next_offset or 0)
        earlier = known._replace(offset=tracker.next_offset or known.offset, topic_id=old.topic_id)
        start = Start("earliest", (), "new topic", "the topic was recreated while it was read", earlier, 0)
        new = self.make(old.partition, self.assignments.next_epoch(), start)
        tracker.end()
        new.topic_id = topic_id
        new.tracker.reach(0)  # else nothing can be committed while the lanes are full of earlier records
        new.before = old
        self.recreated(new, earlier)
        self.assignments.add([new])
        return new

    def recreated(self, assignment: Assignment, earlier: Checkpoint) -> None:
        """Log that the topic is not the one that was read before."""
        if earlier.topic_id is not None:
            self.topic_ids.former(assignment.partition.topic, earlier.topic_id)
        log.error(
            "topic_made_anew",
            partition=str(assignment.partition),
            earlier_id=earlier.topic_id,
            id=assignment.topic_id,
            read_up_to=earlier.offset,
            goes_on_at="earliest",
            records_lost=None,
            hint="Kafka cannot say what the earlier topic contained from there on; the whole new one is read",
        )
