"""The moments in reading Kafka at which a stage can take part."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError

from worker.configuration import Configuration
from worker.formats.interface import Record
from worker.units.assigned_partition import Assignment

Run = tuple[Assignment, list[Record]]
"""Records of one partition, in the order of their offsets."""


class Failure(NamedTuple):
    """An error that a poll returned in place of a record."""

    error: KafkaError
    topic: str | None
    assignment: Assignment | None
    """None: the error does not concern a partition of this worker."""
    offset: int | None

    @property
    def out_of_range(self) -> bool:
        """The broker does not have the offset, so librdkafka no longer fetches the partition."""
        return self.assignment is not None and self.error.code() == KafkaError._AUTO_OFFSET_RESET


class Stage(Protocol):
    """One concern of the polling thread. All methods run on that thread.

    At each moment, the stages are called in their order. A stage overrides the methods that concern it."""

    def assigned(self, added: Collection[Assignment]) -> None:
        """Partitions were assigned. Called inside a poll."""
        return

    def revoked(self, gone: Collection[Assignment]) -> None:
        """Forget the records of these partitions: their next owner reads them. Called inside a poll."""
        return

    def replaced(self, old: Assignment, new: Assignment) -> None:
        """The topic was recreated: `new` is the assignment of the same partition from now on."""
        return

    def between_polls(self, now: float) -> None:
        """Called in each round, whether or not a poll follows."""
        return

    def may_read(self, now: float) -> bool:
        """Whether records may be read and routed now."""
        return True

    def before_poll(self) -> None:
        """A poll follows, and everything from the last one was routed."""
        return

    def records(self, runs: Iterable[Run]) -> Iterable[Run]:
        """Pass on the records that may be handled now, and hold the others back."""
        return runs

    def ended(self, assignment: Assignment, offset: int) -> bool:
        """The partition is read to its end. False: this stage holds back records before that end."""
        return True

    def ends(self) -> list[tuple[Assignment, int]]:
        """Return ends for which `ended` was False, and before which nothing is held back any more."""
        return []

    def failed(self, failure: Failure) -> None:
        """A poll returned an error."""
        return

    def flush(self, assignment: Assignment, *, again: bool) -> Iterable[Run]:
        """Hold no records of this partition any more. Returns the records to handle now.

        `again`: Kafka delivers its unregistered records again. Otherwise, they are never delivered again."""
        return ()

    def holds(self, assignment: Assignment) -> bool:
        """Whether records are held that the partition's tracker does not know."""
        return False

    def adopt(self, now: Configuration) -> None:
        """The configuration was reloaded."""
        return
