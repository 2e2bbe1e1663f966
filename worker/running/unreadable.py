"""Skips an unreadable Kafka batch, if a person says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from confluent_kafka import KafkaException

from handlers.logs import get_logger
from worker.fetching.fetcher import Requests
from worker.fetching.standstill import Standstill
from worker.kafka.unreadable_batch import EndUnknown, end_of_batch
from worker.observing.unblock_messages import Refused, UnblockAnswer, UnblockRequest
from worker.partitions.refetching import Refetching
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("unblock")


@dataclass(eq=False)
class Unreadable:
    """One order at a time. Any thread. Waits for the fetcher.

    `settings`: the consumer's. `commit`: saves what is finished, and returns whether Kafka has it. `stopped`:
    whether the worker is about to stop."""

    assignments: Assignments
    requests: Requests
    _: KW_ONLY
    standstill: Standstill
    refetching: Refetching
    stages: Sequence[Stage]
    settings: Mapping[str, Any]
    commit: Callable[[], bool]
    stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()  # a second order would look for the same end

    def __call__(self, asked: UnblockRequest, client: str) -> UnblockAnswer:
        """`client`: the address that the request came from."""
        try:
            with self._lock:
                assignment = self._find(asked)
                known = assignment.tracker.next_offset
                # Without a record yet, a partition that begins with its log is read to no offset.
                read_to = 0 if known is None and assignment.start.offset == "earliest" else known
                end = end_of_batch(self.settings, assignment.partition, asked.offset, read_to)
                self._go_on(assignment, known, end)
        except (EndUnknown, Refused) as refused:
            log.warning("unblock_refused", found=str(refused), by=asked.by, client=client)
            return UnblockAnswer(result="refused", message=str(refused))
        committed = self.commit()
        log.warning(
            "batch_passed_over",
            partition=str(assignment.partition),
            first=asked.offset,
            end=end,
            committed=committed,
            by=asked.by,
            client=client,
        )
        position = assignment.record_at(asked.offset)
        message = f"{position} to {end - 1} are skipped: their batch cannot be read"
        if not committed:
            message += "; this is not in Kafka yet, so a crash before the next commit undoes it"
        return UnblockAnswer(result="set_aside", message=message, position=position, committed=committed)

    def _find(self, asked: UnblockRequest) -> Assignment:
        """Find the partition whose unreadable batch is meant. Raises Refused."""
        if asked.topic is None or asked.partition is None:
            raise Refused("give --table; or, for a batch that cannot be read, --topic and --partition")
        if asked.action != "skip":
            raise Refused("a batch that cannot be read cannot be a dead letter: use --skip")
        assignment = self.assignments.get(asked.topic, asked.partition)
        if assignment is None:
            raise Refused(
                f"this worker does not have {asked.topic}[{asked.partition}]: ask the worker that has it"
            )
        error = self.standstill.error(assignment)
        if error is None or not error.unreadable:
            raise Refused(
                f"{assignment.partition} has no batch that cannot be read: give --table of the record"
            )
        begin = assignment.tracker.next_offset if error.offset is None else error.offset
        if begin != asked.offset:
            raise Refused(f"the batch of {assignment.partition} that cannot be read begins at offset {begin}")
        return assignment

    def _go_on(self, assignment: Assignment, read_to: int | None, end: int) -> None:
        """Make the fetcher continue the partition at `end`. `read_to`: it was read to here before.

        Raises Refused."""

        def restart() -> None:
            if self.assignments.get(*assignment.partition) is not assignment:
                raise Refused(
                    f"{assignment.partition} has just left this worker: ask the one that has it now"
                )
            if any(stage.holds(assignment) for stage in self.stages):  # they would count as finished
                raise Refused(
                    f"{assignment.partition} still has records from before that batch, which wait for a "
                    "schema, a first commit or their turn in source order: try again when they are handled"
                )
            if assignment.tracker.next_offset != read_to:
                raise Refused(f"{assignment.partition} was read further just now: try again")
            assignment.tracker.reach(end)
            self.refetching.restart(assignment, end)

        try:
            if not self.requests.ask(restart, give_up=self.stopped):
                raise Refused("the worker is stopping: try again when it runs")
        except KafkaException as error:
            raise Refused(f"{assignment.partition} cannot be fetched again ({error}): try again") from error
