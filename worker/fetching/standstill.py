"""Partitions that are not read although more records exist and the worker is not the cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import confluent_kafka
import msgspec
from confluent_kafka import OFFSET_END, Consumer, KafkaException

from handlers.logs import get_logger
from offsets.tracker import OffsetTracker
from worker.kafka.unreadable_batch import LastingError
from worker.observing.status import PartitionError
from worker.partitions.pausing import Pauses
from worker.partitions.refetching import Refetching
from worker.partitions.stage import Failure, Stage
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("standstill")

_LOOK_SECONDS = 1.0
_LONGEST_SECONDS = 2.0
"""The longest time between two looks that counts, because the process may have been stopped in between."""
_ASK_SECONDS = 10.0
"""A partition without records for this long is asked for its end, and again at this interval."""
_ANSWER_SECONDS = 1.0
_SAY_SECONDS = 60.0
_FAIL_SECONDS = 90.0


class _Fetched(msgspec.Struct):
    """librdkafka's position in a partition, and how many records it has read from it."""

    next_offset: int = -1
    rxmsgs: int = 0


class _FetchedTopic(msgspec.Struct):
    partitions: dict[int, _Fetched] = {}


class _Broker(msgspec.Struct):
    state: str = ""


class _Statistics(msgspec.Struct):
    """The used part of librdkafka's statistics."""

    topics: dict[str, _FetchedTopic] = {}
    brokers: dict[str, _Broker] = {}


_UP = ("UP", "UPDATE")
_decoder = msgspec.json.Decoder(_Statistics)


@dataclass(slots=True)
class _Watched:
    tracker: OffsetTracker
    """The tracker that it counts with. With a new one, the offsets below belong to a log that is gone."""
    progress: tuple[int | None, int, int, int] = (None, 0, -1, -1)
    read_to: int = -1
    """Where the broker reported its end: transaction markers may follow the last record."""
    fetched: _Fetched = field(default_factory=_Fetched)
    passed_over: int = -1
    """How far librdkafka got through offsets without records, such as aborted transactions."""
    error: LastingError | None = None
    """Kafka's error about it since its last record."""
    quiet: float = 0.0
    """Seconds without progress in which the worker would have accepted records."""
    since: float | None = None
    """How long it had been quiet when Kafka first reported more records; None: there are no more."""
    position: int | None = None
    end: int = 0
    said: bool = False

    @property
    def seconds(self) -> float:
        """How long it has stood still; 0 if it does not."""
        return 0.0 if self.since is None else self.quiet - self.since

    def reset(self) -> None:
        self.quiet, self.since, self.said = 0.0, None, False


@dataclass(eq=False)
class Standstill(Stage):
    """Logs a standstill after a minute and fetches the partition again. `/healthz` fails if this is no help.

    Time counts while Kafka answers, the lanes have room, and the worker has not paused the partition. So an
    outage, a blocked table and an open transaction are no standstill. Kafka's error about a partition is kept
    until it is over. `reason`, `seconds` and `error`: any thread.

    `is_hindered`: whether the worker accepts nothing now, for example because its lanes are full."""

    consumer: Consumer
    assignments: Assignments
    pauses: Pauses
    refetching: Refetching
    is_hindered: Callable[[], bool]

    def __post_init__(self) -> None:
        self._watched: dict[Assignment, _Watched] = {}
        self._silent: dict[Assignment, None] = {}
        """Partitions that Kafka did not answer for when last asked, the oldest question first."""
        self._looked: float | None = None
        self._ask_due = 0.0
        self._hindered = 0.0  # seconds since the last look
        self._hindered_since: float | None = None
        self.reason: str | None = None
        """Which partitions stand still permanently, or None."""

    def seconds(self, assignment: Assignment) -> float:
        """How long it has stood still; 0 if it does not."""
        watched = self._watched.get(assignment)
        return 0.0 if watched is None else watched.seconds

    def is_damaged(self, assignment: Assignment) -> bool:
        """Whether one of its batches cannot be read."""
        error = self.error(assignment)
        return error is not None and error.unreadable

    def error(self, assignment: Assignment) -> PartitionError | None:
        """Return why it is not read, as far as Kafka reports it."""
        watched = self._watched.get(assignment)
        return None if watched is None or watched.error is None else watched.error.told()

    def ended(self, assignment: Assignment, offset: int) -> bool:
        """The broker reported that the partition's end is reached."""
        assignment.end = offset
        self._of(assignment).read_to = offset
        return True

    def failed(self, failure: Failure) -> None:
        if failure.assignment is not None and not failure.out_of_range:
            watched = self._of(failure.assignment)
            self._has_moved(failure.assignment, watched)  # earlier records do not end the error
            watched.error = LastingError.after(watched.error, failure.error, failure.offset)

    def statistics(self, text: str) -> bool:
        """librdkafka's `stats_cb`. Only statistics show that it reads through offsets without records.

        Returns whether at least one broker is connected."""
        found = _decoder.decode(text)
        for topic, told in found.topics.items():
            for number, fetched in told.partitions.items():
                assignment = self.assignments.get(topic, number)
                if assignment is None:
                    continue
                watched = self._of(assignment)
                before, watched.fetched = watched.fetched, fetched
                # Beyond the end, librdkafka has only misread damaged bytes.
                moved = 0 <= before.next_offset < fetched.next_offset <= (assignment.end or 0)
                if moved and fetched.rxmsgs == before.rxmsgs:
                    watched.passed_over = fetched.next_offset
        return any(broker.state in _UP for broker in found.brokers.values())

    def between_polls(self, now: float) -> None:
        """Look once a second."""
        if self._hindered_since is not None:
            self._hindered += now - self._hindered_since
        self._hindered_since = now if self.is_hindered() else None
        if self._looked is not None and now < self._looked + _LOOK_SECONDS:
            return
        passed = 0.0 if self._looked is None else min(now - self._looked - self._hindered, _LONGEST_SECONDS)
        self._looked, self._hindered = now, 0.0
        current = self.assignments.current()
        self._refresh_ends(current)
        for assignment in current:
            self._count(assignment, passed)
        for gone in self._watched.keys() - set(current):
            del self._watched[gone]
            self._silent.pop(gone, None)
        if now >= self._ask_due:
            self._ask_due = now + _ASK_SECONDS
            self._ask([each for each in current if self._of(each).quiet >= _ASK_SECONDS])
        self._judge()

    def _refresh_ends(self, assignments: list[Assignment]) -> None:
        for assignment in assignments:
            end = known_end(self.consumer, assignment)
            if end is not None:
                assignment.end = end
                watched = self._of(assignment)
                if watched.error is not None and watched.error.told_once:  # it may be fetched again
                    watched.error = None

    def _has_moved(self, assignment: Assignment, watched: _Watched) -> bool:
        """Whether it made progress since the last call. If so, its error is over."""
        progress = (assignment.tracker.next_offset, assignment.consumed, watched.read_to, watched.passed_over)
        if progress == watched.progress:
            return False
        if watched.said:
            log.info("standstill_over", partition=str(assignment.partition), seconds=round(watched.seconds))
        watched.progress = progress
        watched.error = None
        watched.reset()
        return True

    def _count(self, assignment: Assignment, passed: float) -> None:
        watched = self._of(assignment)
        if self._has_moved(assignment, watched):
            return
        explained = watched.error is not None and watched.error.explains
        if watched.error is not None and watched.error.is_over(passed):
            watched.error = None
        if not explained and not self.pauses.is_paused(assignment):
            watched.quiet += passed

    def _ask(self, quiet: list[Assignment]) -> None:
        """Ask whether Kafka has more records for these. One without an answer cannot be read either."""
        together = [each for each in quiet if each not in self._silent]
        if together and not self._told_ends(together):
            self._ask_singly(together)
        self._ask_singly([each for each in self._silent if each in quiet])

    def _ask_singly(self, asked: list[Assignment]) -> None:
        """Ask for each one alone: a joint question fails with one of them. Stops at the first failure."""
        for number, assignment in enumerate(asked):
            self._silent.pop(assignment, None)
            if not self._told_ends([assignment]):
                self._silent[assignment] = None  # after the others
                for unknown in asked[number:]:
                    self._of(unknown).reset()
                return

    def _told_ends(self, quiet: list[Assignment]) -> bool:
        """Ask for the ends of these partitions. Returns whether Kafka answered."""
        places = [confluent_kafka.TopicPartition(*each.partition) for each in quiet]
        reached = self.consumer.position(places)
        try:
            # By the consumer's isolation level: records of open transactions do not count.
            ends = self.consumer.offsets_for_times(
                [confluent_kafka.TopicPartition(*each.partition, OFFSET_END) for each in quiet],
                timeout=_ANSWER_SECONDS,
            )
        except KafkaException as failed:
            if len(quiet) == 1:
                watched = self._of(quiet[0])
                watched.error = LastingError.unanswered(watched.error, failed.args[0])
            return False
        for assignment, place, end in zip(quiet, reached, ends, strict=True):
            watched = self._of(assignment)
            if watched.error is not None and watched.error.answer_missing:
                watched.error = None
            known = (assignment.tracker.next_offset, watched.read_to, place.offset)
            watched.position = max((each for each in known if each is not None and each >= 0), default=None)
            if end.error is not None or end.offset < 0 or end.offset <= (watched.position or 0):
                watched.reset()
            else:
                watched.end = end.offset
                if watched.since is None:
                    watched.since = watched.quiet
        return True

    def _judge(self) -> None:
        failed = []
        for assignment, watched in self._watched.items():
            if watched.seconds >= _SAY_SECONDS and not watched.said:
                watched.said = True
                log.error(
                    "standstill",
                    partition=str(assignment.partition),
                    seconds=round(watched.seconds),
                    position=watched.position,
                    end=watched.end,
                    found="Kafka has more records, the lanes have room, nothing is paused, but none arrives",
                    hint="the worker restarts its fetching; if that does not help, /healthz fails",
                )
                self._fetch_anew(assignment, watched)
            elif watched.seconds >= _FAIL_SECONDS and watched.error is None:  # a restart would not help then
                at = "its beginning" if watched.position is None else watched.position
                failed.append(
                    f"{assignment.partition} has not been read for {watched.seconds:.0f} s: it is at {at}, "
                    f"Kafka has records up to {watched.end}, the lanes have room and nothing is paused"
                )
        self.reason = "; ".join(failed) or None

    def _fetch_anew(self, assignment: Assignment, watched: _Watched) -> None:
        try:
            begin = watched.position
            self.refetching.restart(
                assignment, self.refetching.position(assignment) if begin is None else begin
            )
        except KafkaException as error:  # for example during a rebalance
            log.error("standstill_not_mended", partition=str(assignment.partition), error=str(error))

    def _of(self, assignment: Assignment) -> _Watched:
        watched = self._watched.get(assignment)
        if watched is None or watched.tracker is not assignment.tracker:
            watched = self._watched[assignment] = _Watched(assignment.tracker)
        return watched


def known_end(consumer: confluent_kafka.Consumer, assignment: Assignment) -> int | None:
    """Return the partition's end according to the last fetch: asks no broker. Only for the polling thread."""
    place = confluent_kafka.TopicPartition(*assignment.partition)
    _, end = consumer.get_watermark_offsets(place, cached=True)
    return end if end >= 0 else None
