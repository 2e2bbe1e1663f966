"""Partitions that librdkafka no longer fetches, as their offset was not there, and that are fetched again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException

from handlers.logs import get_logger
from worker.kafka.errors import ANSWER_SECONDS, NOWHERE, answered
from worker.partitions.new_assignments import NewAssignments
from worker.partitions.pausing import Pauses
from worker.partitions.stage import Failure, Stage
from worker.partitions.starts import LOOKUP_SECONDS, Starts
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("refetching")

_LOOK_SECONDS = 5.0
"""How often the ids of the topics being read are looked up."""

_CUT = re.compile(r"broker end offset is (\d+)")
"""librdkafka's words for where a log was cut off."""


_OTHER_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})


@dataclass(eq=False)
class Refetching(Stage):
    """Only on the fetcher's thread. `flush_all`: see `Receiver.flush`."""

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
        """The offsets that were asked for again since the last look."""
        self._later: set[Assignment] = set()
        """Those of them that were out of range once more: they wait for the next look."""

    def between_polls(self, now: float) -> None:
        """Unless it was just done: have Kafka asked for the ids of the topics being read, and fetch what was
        put off. Does not wait."""
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
            except KafkaException:  # as in the middle of a rebalance
                self._asked_again[assignment] = begin
                self._later.add(assignment)

    def before_poll(self) -> None:
        """Read topics that have other ids now from their beginning. Raises KafkaException, Stopping."""
        for assignment, topic_id in self.made_anew():
            self.begin_anew(assignment, topic_id)

    def failed(self, failure: Failure) -> None:
        """Raises KafkaException, Stopping."""
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
        """Those whose topic is no longer the one that they were assigned of, with its id of today, as far as
        the brokers have told. One whose id nobody knew has it from now on."""
        found = []
        for assignment in self.assignments.current():
            seen = self.new_assignments.topic_ids.seen(assignment.partition.topic)
            if seen is not None and assignment.topic_id is None:
                assignment.topic_id = seen
            elif seen is not None and seen != assignment.topic_id:
                found.append((assignment, seen))
        return found

    def other_id(self, assignment: Assignment) -> str | None:
        """The topic's id, if it is not the one that the partition was assigned of. Asks, and waits."""
        topic = assignment.partition.topic
        if assignment.topic_id is None:
            return None
        found = self.starts.topic_ids([topic]).get(topic)
        return None if found == assignment.topic_id else found

    def begin_anew(self, assignment: Assignment, topic_id: str) -> Assignment:
        """The topic has another id now: read it from its beginning, as a new assignment. What the earlier one
        brought is handled first, but for records whose schema is not known: they are told as lost.

        Raises:
            KafkaException: librdkafka refuses it.
            Stopping: the worker is to stop, and Kafka did not answer.
        """
        self.flush_all(assignment, again=False)
        new = self.new_assignments.succeed(assignment, topic_id)
        for stage in self.stages:
            stage.replaced(assignment, new)
        self.restart(new, OFFSET_BEGINNING)
        return new

    def out_of_range(self, assignment: Assignment, error: KafkaError) -> None:
        """The broker does not have the offset: go on at the next one it has, and say what that means.

        Raises:
            KafkaException: librdkafka refuses it.
            Stopping: the worker is to stop, and Kafka did not answer.
        """
        where = confluent_kafka.TopicPartition(*assignment.partition)
        tracker = assignment.tracker
        position = tracker.next_offset if tracker.next_offset is not None else assignment.start.offset
        self.starts.alive(0.0)
        ends = answered(
            lambda: self.consumer.get_watermark_offsets(where, timeout=ANSWER_SECONDS), assignment.partition
        )
        if ends is None:  # librdkafka waits for the leader, and then this comes again
            self.restart(assignment, position if isinstance(position, int) else NOWHERE)
            return
        low, high = ends
        cut = _CUT.search(error.str())
        lost = None
        if not isinstance(position, int):
            begin = self.starts.offset(self.consumer, assignment.partition, assignment.start)
            if 0 <= begin < NOWHERE:  # a kill before the first record must not begin at a later end
                assignment.restart_at(begin)
            what = "could not be looked up: it is looked up again"
        elif position > high:
            begin = high if self.starts.configuration.checkpoint.initial == "latest" else low
            assignment.restart_at(begin)
            what = "is beyond the partition's end: the topic was made anew or cut; counting begins anew"
        elif position < low:
            begin = low
            tracker.reach(low)
            what = "has expired: Kafka's retention deleted it before it was read"
            lost = low - position
        elif cut is not None and low <= int(cut[1]) < position:
            begin = int(cut[1])
            assignment.restart_at(begin)
            what = "is beyond where the log was cut off: what was written from there on is read"
        else:
            begin = position
            what = "was not there and is there now: it is asked for again"
            if self._asked_again.get(assignment) == begin:
                # Behind a damaged batch librdkafka asks for what its bytes seem to name, again and again.
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
        """Fetch the partition from `offset` on. librdkafka has stopped it, and a stopped partition cannot be
        sought in: it has to be assigned anew.

        Raises:
            KafkaException: librdkafka refuses it.
            Stopping: the worker is to stop, and Kafka did not answer.
        """
        assignment.asked = offset
        try:
            self._assign(assignment, offset)
        finally:  # the eager protocol assigns all of them anew
            self.pauses.tell_again()

    def _assign(self, assignment: Assignment, offset: int) -> None:
        place = confluent_kafka.TopicPartition(*assignment.partition, offset)
        if self.starts.incremental:
            self.consumer.incremental_unassign([place])
            self.consumer.incremental_assign([place])
            return
        # The eager protocol takes whole assignments only: the others go on where they are.
        others = [other for other in self.assignments.current() if other is not assignment]
        places = [confluent_kafka.TopicPartition(*other.partition) for other in others]
        places = self.consumer.position(places) if places else []
        for other, reached in zip(others, places, strict=True):
            # Until something comes librdkafka may tell the position that it had reached before.
            if other.asked is not None:
                reached.offset = other.asked
            elif reached.offset < 0:
                reached.offset = self.position(other)
        self.consumer.assign([place, *places])

    def position(self, assignment: Assignment) -> int:
        """Where the partition is to be read on, as librdkafka takes it. Raises Stopping."""
        known = assignment.tracker.next_offset
        if known is not None:
            return known
        return self.starts.offset(self.consumer, assignment.partition, assignment.start)
