"""The partitions that this worker owns at present, each with its tracker."""

from __future__ import annotations

import itertools
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from confluent_kafka import Message

from offsets.finished import FinishedMap
from offsets.restore import Start
from offsets.tracker import OffsetTracker
from offsets.types import Checkpoint, Mark, TopicPartition
from worker.formats.decoding import many_of, transactions_of
from worker.formats.interface import Format, Record
from worker.formats.source_times import SourceTimes
from worker.units.piece_order import PieceOrder


class Transactions:
    """The borders between the transactions of one partition: offsets at which one begins, or after which one
    has ended. A source writes its transactions one after the other. So two records belong to the same one if
    no border is after the first and up to the second."""

    def __init__(self, format_: Format) -> None:
        self._format = format_
        # The fetcher's own.
        self._open: str | None = None
        self._next = -1
        self.in_use = False
        """The partition has had records of a table with whole transactions. Also the fetcher's own."""
        # Guards the borders: processors read them, and the fetcher's thread adds and forgets some.
        self._lock = threading.Lock()
        self._borders = array("q")
        self.queued = -1
        """All records before this offset are queued. Guarded by the lock of `Lanes`."""

    def read(self, records: Sequence[Record], committed: int | None) -> int:
        """Find the borders that fetched records show. Returns the offset after the last one. 1 to 5 us each.

        Forgets borders that only concern records before `committed`."""
        found = array("q")
        for record in records:
            offset = record.offset()
            if offset < self._next:  # fetched again
                continue
            self._next = offset + 1
            begins, ends = transactions_of(self._format, record)
            if begins is None or begins not in ("", self._open):
                found.append(offset)
            self._open = self._open if ends == "" else ends
            if self._open is None:
                found.append(offset + 1)
        with self._lock:
            if committed is not None:
                del self._borders[: max(0, bisect_right(self._borders, committed) - 1)]
            known = self._borders  # whose last one is often found again, at the next record
            known.extend(each for each in found if not known or each > known[-1])
        return self._next

    def begin(self, following: int | None = None, queued: int = -1) -> int:
        """Return the last border up to this record, or -1. None: up to the records that may come next.
        `queued`: a queued record. Pieces of a delivery are queued by table, so it may be the furthest one."""
        with self._lock:
            place = bisect_right(self._borders, max(self.queued, queued) if following is None else following)
            return self._borders[place - 1] if place else -1


_topic = cast(Callable[[Message], str], Message.topic)
_partition = cast(Callable[[Message], int], Message.partition)


class Assignment:
    """One partition from its assignment to its revocation.

    A new assignment of the same partition is another object with another epoch and tracker. So a completion
    that comes too late only changes flags that nobody reads any more."""

    def __init__(
        self,
        partition: TopicPartition,
        epoch: int,
        start: Start,
        format_: Format,
        finished_map: FinishedMap | None = None,
    ) -> None:
        """`finished_map`: a map of finished offsets that outlives the process."""
        self.partition = partition
        self.epoch = epoch
        self.start = start
        self.format = format_
        self.decode_many = many_of(format_)
        """See `DecodesMany`."""
        self.topic_id: str | None = None
        """Kafka's id of the topic, as text; None if it is unknown."""
        first = start.offset if isinstance(start.offset, int) else None
        self._map = finished_map
        self.tracker = OffsetTracker(first, start.ahead, finished_map)
        self.asked: int | None = None
        """The offset of the last request to librdkafka to fetch again, until a record arrives."""
        self.committed: int | None = None
        """The offset that Kafka has acknowledged."""
        self.before: Assignment | None = None
        """The partition's earlier assignment, if the topic was recreated while it was read."""
        self.began_with = start.began_with
        """How many partitions the topic had when the group began to read it, as far as known."""
        self.mark: Mark | None = None
        """The mark that identifies Kafka's present commit, as far as known."""
        self.in_kafka: Checkpoint | None = None
        """The checkpoint in Kafka, as far as this assignment committed it."""
        self.window: str | None = None
        """The window of the map that continues from the last checkpoint."""
        self.on_disk: tuple[Checkpoint, Mark | None, str | None] | None = None
        """What this assignment wrote to the local file: the checkpoint, the mark and the window."""
        self.end: int | None = None
        """The partition's end as the broker last reported it."""
        self.consumed = 0
        self.times = SourceTimes(format_)
        self.transactions = Transactions(format_)
        self.piece_order: PieceOrder | None = None
        """The order of split records, from the first one on. The fetcher's own."""
        self.journaled: int | None = None
        """The position last given to the journal."""
        self.closed = False
        """No work from this assignment may start any more."""
        self.forgotten = False
        """Its running work no longer counts as finished: the next owner repeats it."""

    @property
    def may_begin(self) -> bool:
        """Whether its records may be handled: only after Kafka accepted a commit of this assignment. A former
        owner that still finds its own last commit would count everything in its map as finished."""
        return self.in_kafka is not None

    def came(self, records: Sequence[Record]) -> None:
        """Count fetched records, in the order of their offsets."""
        self.consumed += len(records)
        self.asked = None
        self.times.came(records[-1])

    def last_source_ms(self) -> int | None:
        """Return the source time of the newest fetched change, in milliseconds since 1970. None: no record
        has shown it yet. Any thread. Examines few records."""
        return self.times.latest()

    def record_at(self, offset: int) -> str:
        """Format a position as `topic[partition] offset n`."""
        return f"{self.partition} offset {offset}"

    def __repr__(self) -> str:
        return f"Assignment({self.partition}, epoch {self.epoch})"

    def restart_at(self, offset: int) -> None:
        """Restart tracking at `offset`: the broker lost the records before it, or counts from the start."""
        self.tracker.end()
        self.tracker = OffsetTracker(offset, (), self._map)
        self.times.restart()
        self.transactions = Transactions(self.format)
        self.piece_order = None
        self.in_kafka = self.on_disk = None


def with_earlier(assignments: Iterable[Assignment]) -> set[Assignment]:
    """Return these, and their earlier assignments."""
    found: set[Assignment] = set()
    for assignment in assignments:
        each: Assignment | None = assignment
        while each is not None:
            found.add(each)
            each = each.before
    return found


class Assignments:
    """The present assignments. The fetcher's thread changes them, other threads read them."""

    def __init__(self) -> None:
        # Guards `_by_partition`.
        self._lock = threading.Lock()
        self._by_partition: dict[TopicPartition, Assignment] = {}
        self._epochs = itertools.count(1)
        self.balanced = False
        """True once the group has given this member its share, even an empty one."""

    def next_epoch(self) -> int:
        return next(self._epochs)

    def add(self, assignments: Iterable[Assignment]) -> None:
        with self._lock:
            for assignment in assignments:
                self._by_partition[assignment.partition] = assignment

    def balance(self, assignments: Iterable[Assignment]) -> None:
        """The group has given this member its share: add these."""
        self.add(assignments)
        self.balanced = True

    def get(self, topic: str, partition: int) -> Assignment | None:
        return self._by_partition.get(TopicPartition(topic, partition))

    def of(self, message: Message) -> Assignment | None:
        """Return the assignment of a message that may have no partition."""
        topic, partition = message.topic(), message.partition()
        return None if topic is None or partition is None else self.get(topic, partition)

    def sole(self) -> Assignment | None:
        found = self._by_partition
        return next(iter(found.values())) if len(found) == 1 else None

    def split(self, messages: list[Message], *, left: bool) -> list[tuple[Assignment, list[Message]]]:
        """Group the records by partition, in order. Drops those of revoked partitions.

        `left`: some partitions may have been revoked since these were fetched."""
        if not messages:
            return []
        sole = self.sole()
        if sole is not None and not left:
            return [(sole, messages)]
        partitions = list(map(_partition, messages))
        topics = list(map(_topic, messages))
        # Usually there is one partition. Counting in C is the fastest way to see this.
        if partitions.count(partitions[0]) == len(messages) == topics.count(topics[0]):
            groups: dict[tuple[str, int], list[Message]] = {(topics[0], partitions[0]): messages}
        else:
            groups = {}
            for place, message in zip(zip(topics, partitions, strict=True), messages, strict=True):
                group = groups.get(place)
                if group is None:
                    groups[place] = [message]
                else:
                    group.append(message)
        return [
            (assignment, own)
            for place, own in groups.items()
            if (assignment := self.get(*place)) is not None and not assignment.closed
        ]

    def sending(self, marks: Mapping[TopicPartition, Mark]) -> None:
        """A commit will now be sent to Kafka, and identified by these marks."""
        for partition, mark in marks.items():
            assignment = self.get(*partition)
            if assignment is not None:
                assignment.tracker.sending(mark)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                self._by_partition.pop(partition, None)

    def current(self) -> list[Assignment]:
        with self._lock:
            return list(self._by_partition.values())
