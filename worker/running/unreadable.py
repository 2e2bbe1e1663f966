"""Passes over a batch of Kafka's that cannot be read, when a person says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from handlers.kafka.librdkafka import client_logger
from handlers.logs import get_logger
from offsets.types import TopicPartition
from worker.fetching.fetcher import Fetcher
from worker.fetching.lasting_error import UNREADABLE
from worker.observing.unblock_messages import UnblockAnswer, UnblockRequest
from worker.stuck.record_words import Refused, record_at
from worker.units.assigned_partition import Assignment, Assignments

__all__ = ["Unreadable", "end_of_batch"]

log = get_logger("unblock")

_PROBE_SECONDS = 10.0
_MOST_SECONDS = 45.0
_TRIES = 3
_NONE_THERE = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})


class Unreadable:
    """One order at a time. Any thread; it waits for the fetcher."""

    def __init__(
        self,
        assignments: Assignments,
        fetcher: Fetcher,
        *,
        settings: Mapping[str, Any],
        commit: Callable[[], bool],
        stopped: Callable[[], bool],
    ) -> None:
        """`settings`: of the worker's consumer. `commit`: saves what is finished; whether Kafka has it.
        `stopped`: whether the worker is about to stop."""
        self._assignments = assignments
        self._fetcher = fetcher
        self._settings = settings
        self._commit = commit
        self._stopped = stopped
        self._lock = threading.Lock()  # a second order would look for the same end

    def __call__(self, asked: UnblockRequest, client: str) -> UnblockAnswer:
        """`client`: the address that it came from."""
        try:
            with self._lock:
                assignment = self._find(asked)
                end = end_of_batch(self._settings, assignment.partition, asked.offset)
                self._go_on(assignment, end)
        except Refused as refused:
            log.warning("unblock_refused", found=str(refused), by=asked.by, client=client)
            return UnblockAnswer(result="refused", message=str(refused))
        committed = self._commit()
        log.warning(
            "batch_passed_over",
            partition=str(assignment.partition),
            first=asked.offset,
            end=end,
            committed=committed,
            by=asked.by,
            client=client,
        )
        position = record_at(assignment, asked.offset)
        message = f"{position} to {end - 1} are passed over: their batch cannot be read"
        if not committed:
            message += "; Kafka does not have that yet, so a crash before the next commit undoes it"
        return UnblockAnswer(result="set_aside", message=message, position=position, committed=committed)

    def _find(self, asked: UnblockRequest) -> Assignment:
        """Raises Refused."""
        if asked.topic is None or asked.partition is None:
            raise Refused("say --table; or, of a batch that cannot be read, --topic and --partition")
        if asked.action != "skip":
            raise Refused("a batch that cannot be read cannot be a dead letter: use --skip")
        assignment = self._assignments.get(asked.topic, asked.partition)
        if assignment is None:
            raise Refused(
                f"this worker does not have {asked.topic}[{asked.partition}]: ask the one that does"
            )
        error = self._fetcher.standstill.error(assignment)
        if error is None or not error.unreadable:
            raise Refused(
                f"{assignment.partition} has no batch that cannot be read: say --table of the record"
            )
        begin = assignment.tracker.next_offset if error.offset is None else error.offset
        if begin != asked.offset:
            raise Refused(f"the batch of {assignment.partition} that cannot be read begins at offset {begin}")
        return assignment

    def _go_on(self, assignment: Assignment, end: int) -> None:
        """Have the partition fetched from `end`. Raises Refused."""

        def restart() -> None:
            if self._assignments.get(*assignment.partition) is not assignment:
                raise Refused(
                    f"{assignment.partition} has just left this worker: ask the one that has it now"
                )
            if self._fetcher.holds(assignment):  # they would count as finished
                raise Refused(
                    f"{assignment.partition} still holds records from before that batch, which wait for a "
                    "schema, a first commit or their turn in source order: ask again when they are handled"
                )
            assignment.tracker.reach(end)
            self._fetcher.fetch_from(assignment, end)

        try:
            if not self._fetcher.requests.ask(restart, give_up=self._stopped):
                raise Refused("the worker stops: ask again when it runs")
        except KafkaException as error:
            raise Refused(f"{assignment.partition} cannot be fetched anew ({error}): ask again") from error


def end_of_batch(settings: Mapping[str, Any], partition: TopicPartition, begin: int) -> int:
    """The offset behind the batch that begins at `begin` and cannot be read.

    A broker answers a fetch of any offset with the whole batch that holds it, so librdkafka tells `begin` for
    each offset of the batch and no other. Found by halving: a batch of a million records takes forty fetches.

    Raises:
        Refused: the broker did not answer, or no such batch begins there.
    """
    own = {**settings, "fetch.error.backoff.ms": "10"}
    latest = time.monotonic() + _MOST_SECONDS
    with closing(Consumer(own, logger=client_logger())) as consumer:

        def holds(offset: int) -> bool:
            consumer.assign([confluent_kafka.TopicPartition(*partition, offset)])
            until = min(time.monotonic() + _PROBE_SECONDS, latest)
            while time.monotonic() < until:
                message = consumer.poll(0.5)
                if message is None or message.partition() != partition.partition:
                    continue
                error = message.error()
                if error is None or error.code() in _NONE_THERE:
                    return False
                found = message.offset()
                if error.code() in UNREADABLE and found is not None and found >= 0:
                    return found == begin
            raise Refused(f"the end of the batch at {partition} offset {begin} could not be found: ask again")

        if not holds(begin):
            raise Refused(f"the batch at {partition} offset {begin} can be read now, or is no longer there")
        inside = begin
        # librdkafka takes bytes behind a damaged head for further batches, and tells of them late.
        for _ in range(_TRIES):
            step = 1
            while holds(inside + step):
                inside, step = inside + step, step * 2
            outside = inside + step
            while outside - inside > 1:
                middle = (inside + outside) // 2
                if holds(middle):
                    inside = middle
                else:
                    outside = middle
            if not holds(outside):
                return outside
    raise Refused(f"the end of the batch at {partition} offset {begin} could not be found: ask again")
