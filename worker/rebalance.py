"""Partitions come and go: where each begins, and how one leaves with everything finished committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException

from offsets.restore import Start, choose_start
from offsets.stores import FileStore, PolledKafkaStore
from offsets.stores.interface import CheckpointError
from offsets.types import TopicPartition
from worker.assignment import Assignment, Assignments
from worker.committer import Committer
from worker.configuration import Configuration
from worker.formats.interface import Format
from worker.lanes import Lanes
from worker.logs import get_logger
from worker.metrics import Metrics
from worker.tables import TableBook

__all__ = ["Rebalancer"]

Answer = TypeVar("Answer")

log = get_logger("rebalance")

_LOOKUP_SECONDS = 10.0


class Rebalancer:
    """The consumer's rebalance callbacks. They run on the fetcher's thread, inside its polls."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        assignments: Assignments,
        book: TableBook,
        lanes: Lanes,
        committer: Committer,
        local: FileStore,
        kafka: PolledKafkaStore,
        format_of: Callable[[str], Format],
        metrics: Metrics,
        incremental: bool,
        settled: Callable[[], None],
        stopping: threading.Event,
    ) -> None:
        """`incremental`: the group's protocol adds and takes single partitions.
        `settled`: told when the group has given this member its share."""
        self.configuration = configuration
        self._assignments = assignments
        self._book = book
        self._lanes = lanes
        self._committer = committer
        self._local = local
        self._kafka = kafka
        self._format_of = format_of
        self._metrics = metrics
        self._incremental = incremental
        self.changed: Callable[[set[Assignment], list[Assignment]], None] = lambda gone, added: None
        """Told, while nothing is polled, (those that left, those that came)."""
        self._settled = settled
        self._stopping = stopping
        self._forced: set[TopicPartition] = set()

    def on_assign(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._metrics.rebalance("assign")
        self._kafka.interrupt()
        wanted = [TopicPartition(p.topic, p.partition) for p in partitions]
        starts = self._starts(wanted)
        epoch = self._assignments.next_epoch()
        added: list[Assignment] = []
        places: list[confluent_kafka.TopicPartition] = []
        for partition in wanted:
            start = starts[partition]
            added.append(Assignment(partition, epoch, start, self._format_of(partition.topic)))
            places.append(
                confluent_kafka.TopicPartition(*partition, self._offset(consumer, partition, start))
            )
            log.info(
                "partition_assigned",
                partition=str(partition),
                start=str(start.offset),
                finished_ahead=sum(end - first for first, end in start.ahead),
                source=start.source,
                reason=start.reason,
            )
        if self._incremental:
            consumer.incremental_assign(places)
        else:
            consumer.assign(places)
        self._assignments.add(added)
        self._assignments.balanced = True
        self._settled()
        self.changed(set(), added)

    def on_revoke(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Stop taking, wait for what runs, commit what is finished, forget the rest."""
        self._metrics.rebalance("revoke")
        self._kafka.interrupt()
        gone = self._close(partitions)
        self.changed(set(gone), [])
        running = self._lanes.withdraw(self._book.all(), set(gone), self.configuration.revoke_timeout)
        if running:
            log.warning(
                "revoke_timeout",
                tables=running,
                seconds=self.configuration.revoke_timeout,
                hint="their unfinished records come again to the next owner",
            )
        committed = self._committer.commit(gone) if gone else True
        self._assignments.remove(assignment.partition for assignment in gone)
        log.info("partitions_revoked", partitions=[str(a.partition) for a in gone], committed=committed)

    def on_lost(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Another member may own them already: forget everything, commit nothing."""
        self._metrics.rebalance("lost")
        self._kafka.interrupt()
        gone = self._close(partitions)
        self.changed(set(gone), [])
        self._lanes.withdraw(self._book.all(), set(gone), 0.0)
        self._assignments.remove(assignment.partition for assignment in gone)
        log.warning(
            "partitions_lost",
            partitions=[str(a.partition) for a in gone],
            hint="the group went on without this worker; what was not committed comes again elsewhere",
        )

    def out_of_range(self, consumer: Consumer, assignment: Assignment, error: KafkaError) -> None:
        """The broker does not have the offset: go on at the next one it has, and say what that means."""
        where = confluent_kafka.TopicPartition(*assignment.partition)
        low, high = self._asked(lambda: consumer.get_watermark_offsets(where, timeout=_LOOKUP_SECONDS))
        tracker = assignment.tracker
        start = assignment.start.offset
        position = tracker.next_offset if tracker.next_offset is not None else start
        if isinstance(position, int) and position > high:
            begin = high if self.configuration.checkpoint.initial == "latest" else low
            assignment.restart_at(begin)
            what = "is beyond the partition's end: the topic was made anew or cut; counting begins anew"
            lost = None
        else:
            begin = low
            tracker.reach(low)
            what = "has expired: Kafka's retention deleted it before it was read"
            lost = low - position if isinstance(position, int) else None
        log.error(
            "offset_out_of_range",
            partition=str(assignment.partition),
            offset=position,
            found=what,
            first=low,
            end=high,
            goes_on_at=begin,
            records_lost=lost,
            error=error.str(),
        )
        self._restart(consumer, assignment, begin)

    def _restart(self, consumer: Consumer, assignment: Assignment, offset: int) -> None:
        """Fetch the partition from `offset` on. librdkafka has stopped it, as its offset was not there, and a
        stopped partition cannot be sought in: it has to be assigned anew."""
        place = confluent_kafka.TopicPartition(*assignment.partition, offset)
        if self._incremental:
            consumer.incremental_unassign([place])
            consumer.incremental_assign([place])
            return
        # The eager protocol takes whole assignments only: the others go on where they are.
        others = [other for other in self._assignments.current() if other is not assignment]
        places = consumer.position([confluent_kafka.TopicPartition(*other.partition) for other in others])
        for other, reached in zip(others, places, strict=True):
            if reached.offset < 0:  # nothing came yet
                reached.offset = self._offset(consumer, other.partition, other.start)
        consumer.assign([place, *places])

    def _close(self, partitions: Iterable[confluent_kafka.TopicPartition]) -> list[Assignment]:
        gone = [a for p in partitions if (a := self._assignments.get(p.topic, p.partition)) is not None]
        for assignment in gone:
            assignment.closed = True
        return gone

    def _starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Start]:
        entries = self._local.load_entries(partitions)
        committed = self._asked(lambda: self._kafka.load(partitions))
        checkpoint = self.configuration.checkpoint
        starts = {}
        for partition in partitions:
            # Once a process: a partition that left and came back goes on where it was.
            force = checkpoint.force and partition not in self._forced
            self._forced.add(partition)
            starts[partition] = choose_start(
                partition,
                force=force,
                initial=checkpoint.initial,
                file=entries.get(partition),
                kafka=committed.get(partition),
            )
        return starts

    def _offset(self, consumer: Consumer, partition: TopicPartition, start: Start) -> int:
        """The start as librdkafka takes it."""
        place = start.offset
        if isinstance(place, int):
            return place
        if not isinstance(place, datetime):
            return OFFSET_BEGINNING if place == "earliest" else OFFSET_END
        time = confluent_kafka.TopicPartition(*partition, int(place.timestamp() * 1000))
        found = self._asked(lambda: consumer.offsets_for_times([time], timeout=_LOOKUP_SECONDS))[0]
        return int(found.offset) if found.offset >= 0 else OFFSET_END

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        """Kafka's answer. Where to go on cannot be guessed, so this goes on until Kafka gives one."""
        while True:
            try:
                return ask()
            except (KafkaException, CheckpointError) as error:
                if self._stopping.is_set():
                    raise
                log.error("kafka_does_not_answer", error=str(error), hint="trying again")
                self._stopping.wait(1.0)
