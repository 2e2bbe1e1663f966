"""Partitions that librdkafka stopped fetching because of a missing offset, and that are fetched again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException

from handlers.logs import get_logger
from worker.kafka.errors import ANSWER_SECONDS, NOWHERE, answered
from worker.partitions.pausing import Pauses
from worker.partitions.rebalance import NewAssignments
from worker.partitions.stage import Failure, Stage
from worker.partitions.starts import LOOKUP_SECONDS, Starts
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("refetching")

_LOOK_SECONDS = 5.0
"""Seconds between look-ups of the ids of the topics being read."""

_CUT = re.compile(r"broker end offset is (\d+)")
"""librdkafka's message about where a log was cut off."""


_OTHER_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})


@dataclass(eq=False)
class Refetching(Stage):
    """Restarts stopped partitions. Only on the fetcher's thread. `flush_all`: see `Receiver.flush`."""

    consumer: Consumer
    assignments: Assignments
    pauses: Pauses
    starts: Starts
    new_assignments: NewAssignments
    _: KW_ONLY
    stages: Sequence[Stage]
    flush_all: Callable[..., None]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._look_due = 0.0
        self._asked_again: dict[Assignment, int] = {}
        """The offsets that were requested again since the last look-up."""
        self._later: set[Assignment] = set()
        """Partitions that were out of range once more. They wait for the next look-up."""

    def between_polls(self, now: float) -> None:
        """Request the ids of the topics being read, unless this was just done, and fetch the postponed
        partitions. Does not wait."""
        if now < self._look_due:
            return
        self._look_due = now + _LOOK_SECONDS
        current = self.assignments.current()
        self.new_assignments.topic_ids.look({each.partition.topic for each in current}, LOOKUP_SECONDS)
        again = [(each, self._asked_again[each]) for each in current if each in self._later]
        self._later.clear()
        self._asked_again.clear()
        for assignment, begin in again:
            try:
                self.restart(assignment, begin)
            except KafkaException:  # for example during a rebalance
                self._asked_again[assignment] = begin
                self._later.add(assignment)

    def before_poll(self) -> None:
        """Read recreated topics from their start. Raises KafkaException, Stopping."""
        for assignment, topic_id in self.made_anew():
            self.begin_anew(assignment, topic_id)

    def failed(self, failure: Failure) -> None:
        """Handle an error of a poll. Raises KafkaException, Stopping."""
        assignment, error = failure.assignment, failure.error
        if assignment is None or not failure.out_of_range:
            if error.code() in _OTHER_TOPIC:
                self._look_due = self.clock()
            return
        topic_id = self.other_id(assignment)
        if topic_id is not None:
            self.begin_anew(assignment, topic_id)
            return
        self.flush_all(assignment, again=True)
        self.out_of_range(assignment, error)

    def made_anew(self) -> list[tuple[Assignment, str]]:
        """Return the partitions whose topic has another id than when they were assigned, with the present id,
        as far as the brokers have reported it. Partitions without a known id get the present one."""
        found = []
        for assignment in self.assignments.current():
            seen = self.new_assignments.topic_ids.seen(assignment.partition.topic)
            if seen is not None and assignment.topic_id is None:
                assignment.topic_id = seen
            elif seen is not None and seen != assignment.topic_id:
                found.append((assignment, seen))
        return found

    def other_id(self, assignment: Assignment) -> str | None:
        """Return the topic's id if the partition was assigned under another one. Asks Kafka, and waits."""
        topic = assignment.partition.topic
        if assignment.topic_id is None:
            return None
        found = self.starts.topic_ids([topic]).get(topic)
        return None if found == assignment.topic_id else found

    def begin_anew(self, assignment: Assignment, topic_id: str) -> Assignment:
        """The topic was recreated: read it from its start, as a new assignment. The earlier assignment's
        records are handled first. Those whose schema is unknown are reported as lost.

        Raises KafkaException: librdkafka rejects it; Stopping: Kafka did not answer before a stop."""
        self.flush_all(assignment, again=False)
        new = self.new_assignments.succeed(assignment, topic_id)
        for stage in self.stages:
            stage.replaced(assignment, new)
        self.restart(new, OFFSET_BEGINNING)
        return new

    def out_of_range(self, assignment: Assignment, error: KafkaError) -> None:
        """The broker does not have the offset: continue at the next one that it has, and log what that means.

        Raises KafkaException: librdkafka rejects it; Stopping: Kafka did not answer before a stop."""
        where = confluent_kafka.TopicPartition(*assignment.partition)
        tracker = assignment.tracker
        position = tracker.next_offset if tracker.next_offset is not None else assignment.start.offset
        self.starts.alive(0.0)
        ends = answered(
            lambda: self.consumer.get_watermark_offsets(where, timeout=ANSWER_SECONDS), assignment.partition
        )
        if ends is None:  # librdkafka waits for the leader, and then this happens again
            self.restart(assignment, position if isinstance(position, int) else NOWHERE)
            return
        low, high = ends
        cut = _CUT.search(error.str())
        lost = None
        if not isinstance(position, int):
            begin = self.starts.offset(self.consumer, assignment.partition, assignment.start)
            if 0 <= begin < NOWHERE:  # a kill before the first record must not start at a later end
                assignment.restart_at(begin)
            what = "could not be looked up: the lookup is repeated"
        elif position > high:
            begin = high if self.starts.configuration.checkpoint.initial == "latest" else low
            assignment.restart_at(begin)
            what = "is beyond the partition's end: the topic was recreated or truncated; reading restarts"
        elif position < low:
            begin = low
            tracker.reach(low)
            what = "has expired: Kafka's retention deleted it before it was read"
            finished = (min(end, low) - max(first, position) for first, end in assignment.start.ahead)
            lost = low - position - sum(max(0, count) for count in finished)
        elif cut is not None and low <= int(cut[1]) < position:
            begin = int(cut[1])
            assignment.restart_at(begin)
            what = "is beyond the point where the log was truncated: reading continues from that point"
        else:
            begin = position
            what = "was missing and exists now: it is requested again"
            if self._asked_again.get(assignment) == begin:
                # Behind a damaged batch, librdkafka repeats requests for what the damaged bytes seem to name.
                self._later.add(assignment)
                return
            self._asked_again[assignment] = begin
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
        self.restart(assignment, begin)

    def restart(self, assignment: Assignment, offset: int) -> None:
        """Fetch the partition from `offset` on. librdkafka has stopped it, and cannot seek in a stopped
        partition, so it must be assigned again.

        Raises KafkaException: librdkafka rejects it; Stopping: Kafka did not answer before a stop."""
        assignment.asked = offset
        try:
            self._assign(assignment, offset)
        finally:  # the eager protocol assigns all of them again
            self.pauses.tell_again()

    def _assign(self, assignment: Assignment, offset: int) -> None:
        place = confluent_kafka.TopicPartition(*assignment.partition, offset)
        if self.starts.incremental:
            self.consumer.incremental_unassign([place])
            self.consumer.incremental_assign([place])
            return
        # The eager protocol accepts only whole assignments: the others continue where they are.
        others = [other for other in self.assignments.current() if other is not assignment]
        places = [confluent_kafka.TopicPartition(*other.partition) for other in others]
        places = self.consumer.position(places) if places else []
        for other, reached in zip(others, places, strict=True):
            # Until a record arrives, librdkafka may return the position from before the last assignment.
            if other.asked is not None:
                reached.offset = other.asked
            elif reached.offset < 0:
                reached.offset = self.position(other)
        self.consumer.assign([place, *places])

    def position(self, assignment: Assignment) -> int:
        """Return where to continue the partition, in librdkafka's terms. Raises Stopping."""
        known = assignment.tracker.next_offset
        if known is not None:
            return known
        return self.starts.offset(self.consumer, assignment.partition, assignment.start)
