"""Stages around polls: send commits between them, count their records, log their errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from confluent_kafka import KafkaError, KafkaException

from offsets.stores import PolledKafkaStore
from worker.kafka.errors import KafkaErrors
from worker.partitions.stage import Failure, Run, Stage
from worker.units.assigned_partition import Assignment


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
