"""What a poll brought: records on their way to the lanes, ends of partitions, and errors of single ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message

from worker.fetching.backlog import Backlog
from worker.fetching.held_records import HeldRecords
from worker.fetching.polling.polls import Polls
from worker.fetching.routing import Router
from worker.fetching.source_order import SourceOrder
from worker.fetching.standstill import Standstill
from worker.formats.choice import NO_FORMAT
from worker.formats.interface import Record
from worker.kafka.errors import KafkaErrors
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.max_ahead import MaxAhead
from worker.partitions.pausing import Pauses
from worker.partitions.refetching import Refetching
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.delivery import Delivery

_OTHER_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})

_error = Message.error


def _is_fault(message: Message) -> bool:
    """Neither a record nor the end of a partition."""
    error = message.error()
    return error is not None and error.code() != KafkaError._PARTITION_EOF


@dataclass(eq=False, kw_only=True)
class Receiver:
    """The fetcher's own, on its thread.

    `order`: as of the fetcher.
    """

    assignments: Assignments
    router: Router
    refetching: Refetching
    lanes: Lanes
    errors: KafkaErrors
    metrics: Metrics
    order: SourceOrder | None
    gate: HeldRecords
    pauses: Pauses
    max_ahead: MaxAhead
    standstill: Standstill
    polls: Polls
    backlog: Backlog
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self.brought = self.clock()
        """When a poll last brought a record, or the end of a partition."""
        self.held_since = 0.0
        """When the lanes last had no room for what came."""

    def receive(self, messages: list[Message]) -> None:
        """Route the records of a poll, and act on what is none.

        Raises KafkaException for what ends the worker, UndecodableHalt, Stopping."""
        if not self.backlog:  # nothing is under way to a table
            self.router.let_go(self.lanes.at_rest)
        if not messages and not self.order and not self.gate:
            return
        if not all(map(_is_fault, messages)):
            self.brought = self.clock()
        full = len(messages) >= self.polls.size.records
        ends: list[Message] = []
        if any(map(_error, messages)):
            ends = [m for m in messages if m.error() is not None]
            messages = [m for m in messages if m.error() is None]
        self._route(self._in_order(messages), full=full)
        for message in [*ends, *self.gate.ends()]:
            self._told(message)
        if self.order is not None:
            self.pauses.single("ddl_topics", self.order.ahead())
            for assignment, end in self.order.ends():
                assignment.tracker.reach(end)

    def _route(self, runs: Iterable[tuple[Assignment, list[Record]]], *, full: bool) -> None:
        delivery = Delivery()
        count = 0
        routed: dict[Assignment, None] = {}
        try:
            for assignment, own in runs:
                count += len(own)
                routed[assignment] = None
                self.router.route(assignment, own, delivery)
        finally:  # what was routed before a record that stops the worker is still handed over
            if delivery.parts:
                self._hand_over(delivery, full=full, count=count)
            self.max_ahead.came(routed)

    def _hand_over(self, delivery: Delivery, *, full: bool, count: int) -> None:
        """Give a delivery to the lanes; keep it until they have room."""
        fits = self.backlog.add(delivery)
        if not fits:
            self.held_since = self.clock()
        self.polls.size.adjust(delivery, count, full=full, fits=fits)

    def _in_order(self, messages: list[Message]) -> Iterator[tuple[Assignment, list[Record]]]:
        """The records of each partition; those of several topics in source order where that is wanted."""
        for assignment, own in self.assignments.split(messages, left=self.polls.some_revoked):
            if assignment.format is NO_FORMAT:  # fetched before it was paused
                continue
            assignment.asked = None  # what the gate keeps has come, too
            records = self.gate.add(assignment, cast(list[Record], own))
            if records:
                yield from self._come(assignment, records)
        if self.gate:
            for assignment, records in self.gate.due():
                yield from self._come(assignment, records)
        if self.order:
            # Behind DDL that cannot be read nothing goes on until a person says so.
            errors = map(self.standstill.error, self.order.with_ddl())
            is_damaged = any(error is not None and error.unreadable for error in errors)
            yield from self.order.due(patient=is_damaged or bool(self.max_ahead or self.gate))

    def _come(
        self, assignment: Assignment, records: list[Record]
    ) -> Iterable[tuple[Assignment, list[Record]]]:
        assignment.came(records)
        self.metrics.consumed(*assignment.partition, len(records))
        return [(assignment, records)] if self.order is None else self.order.add(assignment, records)

    def _told(self, message: Message) -> None:
        """Not a record: the end of a partition, or an error."""
        error = cast(KafkaError, message.error())
        assignment, offset = self.assignments.of(message), message.offset()
        if error.code() == KafkaError._PARTITION_EOF:
            # Behind the last record may lie transaction markers; everything below has been read.
            if assignment is not None and offset is not None:
                if self.gate.keeps_end(assignment, message):
                    return
                assignment.end = offset
                self.standstill.read_to_end(assignment, offset)
                if self.order is None or self.order.at_end(assignment, offset):
                    assignment.tracker.reach(offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET and assignment is not None:
            topic_id = self.refetching.other_id(assignment)
            if topic_id is not None:
                self.begin_anew([(assignment, topic_id)])
                return
            if self.order is not None:
                self._route(self.order.let_go(assignment), full=False)
            self.gate.forget([assignment])
            self.refetching.out_of_range(assignment, error)
            self.pauses.came(self.assignments.current())  # the eager protocol assigns all of them anew
        elif error.fatal() or error.code() == KafkaError._FATAL:  # which of both depends on the version
            raise KafkaException(error)
        else:
            if error.code() in _OTHER_TOPIC:
                self.refetching.suspect()
            self.errors.report(error, topic=message.topic())
            if assignment is not None:
                self.standstill.refused(assignment, error, offset)

    def begin_anew(self, changed: list[tuple[Assignment, str]]) -> None:
        """The topics of these have other ids now. What the earlier ones brought is handled first,
        but for records whose schema is not known: they are told as lost."""
        for assignment, topic_id in changed:
            held, unknown = self.gate.let_go(assignment)
            if held:
                self._route(self._come(assignment, held), full=False)
            if self.order is not None:
                self._route(self.order.let_go(assignment), full=False)
                self.order.forget({assignment})
            new = self.refetching.begin_anew(assignment, topic_id, unknown)
            if self.order is not None:
                self.order.watch([new])
        if changed:
            self.pauses.came(self.assignments.current())  # the eager protocol assigns all of them anew
