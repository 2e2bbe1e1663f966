"""The results of a poll: records for the lanes, ends of partitions, errors, and commits between polls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message

from offsets.stores.polled import PolledKafkaStore
from worker.fetching.backpressure import Backpressure
from worker.fetching.routing import Router
from worker.formats.interface import Record
from worker.formats.registry import NO_FORMAT
from worker.kafka.errors import KafkaErrors
from worker.partitions.stage import Failure, Run, Stage
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.delivery import Delivery

_error = Message.error


@dataclass(eq=False)
class Receiver:
    """Takes polled messages through the stages. The fetcher's own, on its thread."""

    stages: Sequence[Stage]
    assignments: Assignments
    router: Router
    backpressure: Backpressure

    def receive(self, messages: list[Message]) -> None:
        """Route the records of a poll, and pass on ends and errors.

        Raises KafkaException for an error that ends the worker, UndecodableHalt, Stopping."""
        if not self.backpressure.backlog:  # no record is on its way to a table
            self.router.let_go(self.backpressure.lanes.at_rest)
        full = len(messages) >= self.backpressure.polls.size.records
        others: list[Message] = []
        if any(map(_error, messages)):
            others = [m for m in messages if m.error() is not None]
            messages = [m for m in messages if m.error() is None]
        self._route(self._through(self._split(messages)), full=full)
        for message in others:
            assignment, offset = self.assignments.of(message), message.offset()
            error = cast(KafkaError, message.error())
            if error.code() != KafkaError._PARTITION_EOF:
                failure = Failure(error, message.topic(), assignment, offset)
                for stage in self.stages:
                    stage.failed(failure)
            elif assignment is not None and offset is not None:
                self._ended(assignment, offset)
        for place, stage in enumerate(self.stages):
            for assignment, end in stage.ends():
                self._ended(assignment, end, behind=place + 1)

    def flush(self, assignment: Assignment, *, again: bool) -> None:
        """Route the records of the partition that the stages hold. `again`: see `Stage.flush`."""
        for place, stage in enumerate(self.stages):
            if runs := list(stage.flush(assignment, again=again)):
                self._route(self._through(runs, behind=place + 1), full=False)

    def _split(self, messages: list[Message]) -> Iterator[Run]:
        for assignment, own in self.assignments.split(messages, left=self.backpressure.polls.some_revoked):
            if assignment.format is NO_FORMAT:  # fetched before it was paused
                continue
            assignment.asked = None  # records that a stage holds back have arrived, too
            yield assignment, cast(list[Record], own)

    def _through(self, runs: Iterable[Run], *, behind: int = 0) -> Iterable[Run]:
        """Return what the stages pass on, starting after the first `behind` stages."""
        for stage in self.stages[behind:]:
            runs = stage.records(runs)
        return runs

    def _route(self, runs: Iterable[Run], *, full: bool) -> None:
        delivery = Delivery()
        count = 0
        try:
            for assignment, own in runs:
                count += len(own)
                self.router.route(assignment, own, delivery)
        finally:  # records routed before one that stops the worker still reach the lanes
            if delivery.parts:
                self.backpressure.hand_over(delivery, count, full=full)
            elif delivery.queued:
                self.backpressure.backlog.add(delivery)

    def _ended(self, assignment: Assignment, offset: int, *, behind: int = 0) -> None:
        """The partition is read to its end. Transaction markers may follow the last record: everything below
        `offset` has been read."""
        if all(stage.ended(assignment, offset) for stage in self.stages[behind:]):
            assignment.tracker.reach(offset)


class Arrivals(Stage):
    """Counts fetched records, without those that an earlier stage holds back."""

    def __init__(self, consumed: Callable[[str, int, int], object]) -> None:
        """`consumed`: called with (topic, partition, records)."""
        self._consumed = consumed

    def records(self, runs: Iterable[Run]) -> Iterable[Run]:
        for assignment, own in runs:
            assignment.came(own)
            self._consumed(*assignment.partition, len(own))
            yield assignment, own


class KafkaAnswers(Stage):
    """Sends commits, and logs errors. Errors count until the group assigns partitions to this worker."""

    def __init__(self, store: PolledKafkaStore, errors: KafkaErrors) -> None:
        self._store = store
        self._errors = errors

    def between_polls(self, now: float) -> None:
        self._store.serve()

    def assigned(self, added: Collection[Assignment]) -> None:
        self._errors.settled()

    def failed(self, failure: Failure) -> None:
        """Raise KafkaException for an error that ends the worker."""
        error = failure.error
        if failure.out_of_range:  # logged where the partition is fetched again
            return
        if error.fatal() or error.code() == KafkaError._FATAL:  # which of the two depends on the version
            raise KafkaException(error)
        self._errors.report(error, topic=failure.topic)
