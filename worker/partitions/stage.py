"""The moments at which something takes part in reading Kafka."""

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
    """None: the error is not about a partition of this worker."""
    offset: int | None

    @property
    def out_of_range(self) -> bool:
        """The broker does not have the offset, so librdkafka no longer fetches the partition."""
        return self.assignment is not None and self.error.code() == KafkaError._AUTO_OFFSET_RESET


class Stage(Protocol):
    """One concern of the thread that polls. All methods run on that thread.

    Each moment goes through the list of stages in its order. A stage overrides what concerns it.
    """

    def assigned(self, added: Collection[Assignment]) -> None:
        """Partitions were assigned. Called inside a poll."""
        return

    def revoked(self, gone: Collection[Assignment]) -> None:
        """Forget what is held of these partitions: it comes again elsewhere. Called inside a poll."""
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
        """A poll follows, and everything of the last one was routed."""
        return

    def records(self, runs: Iterable[Run]) -> Iterable[Run]:
        """Pass on the records that may be handled now, and hold the others back."""
        return runs

    def ended(self, assignment: Assignment, offset: int) -> bool:
        """The partition is read to its end. False: this stage holds back records before that end."""
        return True

    def ends(self) -> list[tuple[Assignment, int]]:
        """Ends for which `ended` was False, and before which nothing is held back any more."""
        return []

    def failed(self, failure: Failure) -> None:
        """A poll returned an error."""
        return

    def flush(self, assignment: Assignment, *, again: bool) -> Iterable[Run]:
        """Hold nothing of this partition any more. Returns the records to handle now.

        `again`: Kafka brings its unregistered records again. Otherwise nobody does.
        """
        return ()

    def holds(self, assignment: Assignment) -> bool:
        """Whether records are held that the partition's tracker does not know."""
        return False

    def adopt(self, now: Configuration) -> None:
        """The configuration was reloaded."""
        return
