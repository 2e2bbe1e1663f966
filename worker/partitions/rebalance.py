"""Partitions come and go: how one leaves with everything finished committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import KW_ONLY, dataclass, replace

import confluent_kafka
from confluent_kafka import Consumer

from handlers.logs import get_logger
from offsets.finished import FinishedMap
from offsets.restore import Start
from offsets.stores import PolledKafkaStore
from offsets.topic_ids import TopicIds
from offsets.types import Checkpoint, TopicPartition
from worker.formats.interface import Format
from worker.kafka.errors import NOWHERE, Stopping
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.committer import Committer
from worker.partitions.former_topics import FormerRecords, told_anew
from worker.partitions.starts import Starts
from worker.units.assigned_partition import Assignment, Assignments, with_earlier
from worker.units.table_book import TableBook

log = get_logger("rebalance")

_COMMIT_SECONDS = 180.0
"""What a commit may take while the coordinator does not answer: librdkafka waits for the answer as long as
`socket.timeout.ms`, and then for a coordinator as long as `session.timeout.ms`."""


@dataclass(eq=False)
class Rebalancer:
    """The consumer's rebalance callbacks. They run on the fetcher's thread, inside its polls.

    `incremental`: the group's protocol adds and takes single partitions.
    `release`: tells the handlers that partitions leave, and waits so many seconds for them.
    `settled`: told when the group has given this member its share.
    """

    starts: Starts
    _: KW_ONLY
    revoke_timeout: float
    """Seconds that a revoke waits for what runs."""
    assignments: Assignments
    book: TableBook
    lanes: Lanes
    former: FormerRecords
    committer: Committer
    kafka: PolledKafkaStore
    finished_map: FinishedMap
    topic_ids: TopicIds
    format_of: Callable[[str], Format]
    metrics: Metrics
    incremental: bool
    release: Callable[[Collection[tuple[str, int]], float], None]
    settled: Callable[[], None]

    def __post_init__(self) -> None:
        self.changed: Callable[[set[Assignment], list[Assignment]], None] = lambda gone, added: None
        """Told, while nothing is polled, (those that left, those that came)."""
        self.offer: Callable[[], object] = lambda: None
        """Hands the lanes what they had no room for, if they have now."""

    def on_assign(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        try:
            self._assign(consumer, [TopicPartition(p.topic, p.partition) for p in partitions])
        except Stopping:
            # confluent-kafka assigns them if this does not; their records would count as those of others.
            # At the end: librdkafka, on a thread of its own, may fetch before it pauses.
            at_end = [
                confluent_kafka.TopicPartition(each.topic, each.partition, confluent_kafka.OFFSET_END)
                for each in partitions
            ]
            self._fetch(consumer, at_end)
            consumer.pause(at_end)
            log.info("partitions_not_taken", partitions=len(partitions), reason="the worker stops")

    def _fetch(self, consumer: Consumer, places: list[confluent_kafka.TopicPartition]) -> None:
        (consumer.incremental_assign if self.incremental else consumer.assign)(places)

    def _assign(self, consumer: Consumer, wanted: list[TopicPartition]) -> None:
        self.metrics.rebalance("assign")
        self.kafka.interrupt()
        topic_ids = self.starts.topic_ids({partition.topic for partition in wanted})
        starts, marks = self.starts.of(consumer, wanted, topic_ids)
        epoch = self.assignments.next_epoch()
        added: list[Assignment] = []
        places: list[confluent_kafka.TopicPartition] = []
        for partition in wanted:
            start = starts[partition]
            offset = self.starts.offset(consumer, partition, start)
            if 0 <= offset < NOWHERE:  # a kill before the first record must not begin at a later end
                start = replace(start, offset=offset)
            format_ = self.format_of(partition.topic)
            assignment = Assignment(partition, epoch, start, format_, self.finished_map)
            assignment.topic_id = start.topic_id  # what is remembered is never replaced by nothing
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
                self._made_anew(assignment, start.earlier)
        self._fetch(consumer, places)
        self.assignments.add(added)
        self.assignments.balanced = True
        self.settled()
        self.changed(set(), added)

    def on_revoke(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Stop taking, but for what nobody can fetch again; wait for what runs, commit, forget the rest."""
        self.starts.alive(self.revoke_timeout + _COMMIT_SECONDS)
        end = time.monotonic() + self.revoke_timeout
        self.metrics.rebalance("revoke")
        self.kafka.interrupt()
        self.former.work_off(self._assigned(partitions), self.revoke_timeout, self.offer)
        gone = self._close(partitions)
        self.changed(with_earlier(gone), [])
        left = max(0.0, end - time.monotonic())
        running = self.lanes.withdraw(self.book.all(), with_earlier(gone), left)
        if running:
            log.warning(
                "revoke_timeout",
                tables=running,
                seconds=self.revoke_timeout,
                hint="their unfinished records come again to the next owner",
            )
        self.former.tell(gone)
        committed = self.committer.commit(gone) if gone else True
        for assignment in gone:
            assignment.tracker.end()  # before anybody else has it
        self.assignments.remove(assignment.partition for assignment in gone)
        if gone:
            self.release([a.partition for a in gone], max(0.0, end - time.monotonic()))
        log.info("partitions_revoked", partitions=[str(a.partition) for a in gone], committed=committed)

    def on_lost(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Another member may own them already: forget everything, commit nothing."""
        self.metrics.rebalance("lost")
        self.kafka.interrupt()
        gone = self._close(partitions)
        for assignment in gone:
            assignment.tracker.end()
        self.changed(with_earlier(gone), [])
        self.lanes.withdraw(self.book.all(), with_earlier(gone), 0.0)
        self.former.tell(gone)
        self.assignments.remove(assignment.partition for assignment in gone)
        if gone:
            self.release([a.partition for a in gone], 0.0)
        log.warning(
            "partitions_lost",
            partitions=[str(a.partition) for a in gone],
            hint="the group went on without this worker; what was not committed comes again elsewhere",
        )

    def succeed(self, assignment: Assignment, topic_id: str, lost: int = 0) -> Assignment:
        """The topic was made anew while it was read: its partition, from the beginning of the new one. What
        the earlier one brought goes on under the assignment that it had, but for `lost` records, which cannot
        be handled."""
        self.former.lose(assignment, lost, "their schema was not known")
        tracker = assignment.tracker
        known = assignment.in_kafka or Checkpoint(tracker.next_offset or 0)
        earlier = known._replace(offset=tracker.next_offset or known.offset, topic_id=assignment.topic_id)
        start = Start("earliest", (), "new topic", "the topic was made anew while it was read", earlier, 0)
        new = Assignment(
            assignment.partition,
            self.assignments.next_epoch(),
            start,
            self.format_of(assignment.partition.topic),
            self.finished_map,
        )
        tracker.end()
        new.topic_id = topic_id
        new.before = assignment
        self._made_anew(new, earlier)
        self.assignments.add([new])
        return new

    def commit_soon(self) -> None:
        """It is known where partitions begin: commit that, on the committer's thread. Before Kafka has taken
        it nothing of them is handled, and a kill does not send all of them back to the beginning."""
        self.committer.wake()

    def _made_anew(self, assignment: Assignment, earlier: Checkpoint) -> None:
        """The topic is not the one that was read before."""
        if earlier.topic_id is not None:
            self.topic_ids.former(assignment.partition.topic, earlier.topic_id)
        told_anew(assignment, earlier)

    def _assigned(self, partitions: Iterable[confluent_kafka.TopicPartition]) -> list[Assignment]:
        return [a for p in partitions if (a := self.assignments.get(p.topic, p.partition)) is not None]

    def _close(self, partitions: Iterable[confluent_kafka.TopicPartition]) -> list[Assignment]:
        gone = self._assigned(partitions)
        for assignment in with_earlier(gone):
            assignment.closed = True
            if assignment.committed is not None:
                self.starts.gone(assignment.partition)
        return gone
