"""Commits that are sent between polls, and what polls return: records are counted, errors are logged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from confluent_kafka import KafkaError, KafkaException

from offsets.stores import PolledKafkaStore
from worker.kafka.errors import KafkaErrors
from worker.partitions.stage import Failure, Run, Stage
from worker.units.assigned_partition import Assignment


class Arrivals(Stage):
    """Counts what was fetched, without what is held back by an earlier stage."""

    def __init__(self, consumed: Callable[[str, int, int], object]) -> None:
        """`consumed`: told (topic, partition, records)."""
        self._consumed = consumed

    def records(self, runs: Iterable[Run]) -> Iterable[Run]:
        for assignment, own in runs:
            assignment.came(own)
            self._consumed(*assignment.partition, len(own))
            yield assignment, own


class KafkaAnswers(Stage):
    """Sends commits, and logs errors. Those count until the group gives this worker its partitions."""

    def __init__(self, store: PolledKafkaStore, errors: KafkaErrors) -> None:
        self._store = store
        self._errors = errors

    def between_polls(self, now: float) -> None:
        self._store.serve()

    def assigned(self, added: Collection[Assignment]) -> None:
        self._errors.settled()

    def failed(self, failure: Failure) -> None:
        """Raises KafkaException for an error that ends the worker."""
        error = failure.error
        if failure.out_of_range:  # logged where the partition is fetched anew
            return
        if error.fatal() or error.code() == KafkaError._FATAL:  # which of both depends on the version
            raise KafkaException(error)
        self._errors.report(error, topic=failure.topic)
