"""What a checkpoint store must do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from offsets.stores.file_format import FileEntry
from offsets.types import Checkpoint, Mark, TopicPartition


class CheckpointError(Exception):
    """A store could not be read or written. The text says which, where, why, and what to do about it."""


class StoreAway(CheckpointError):
    """The store does not answer, or is held by another; the same again may do."""


class CheckpointStore(Protocol):
    """Remembers what is finished of each partition. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """`file`, `sql` or `kafka`: the metrics' label `store`."""

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Checkpoint]:
        """What the store knows of these partitions; one that it does not know is left out.

        Raises CheckpointError: the store cannot be read."""

    def save(self, checkpoints: Mapping[TopicPartition, Checkpoint]) -> object:
        """Replace what is remembered of these partitions; other partitions stay as they are.

        On return it is as durable as this store can make it. All or nothing, as far as the store can.

        Raises CheckpointError: it is not known to be saved. What was remembered before still counts."""

    def close(self) -> None:
        """Let go of threads and files. May be called twice."""


class OwnStore(CheckpointStore, Protocol):
    """A group's store beside Kafka, which also remembers what Kafka has acknowledged."""

    @property
    def title(self) -> str:
        """What it is, for people: `local file`, `database`."""

    @property
    def place(self) -> str:
        """Where it is, for people; without passwords."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was found damaged since the store was made, each fault once."""

    def open(self) -> None:
        """Be the only one with its identity, until `close` or the process's end; nothing where it has none.

        Raises StoreAway: another one has it, or the store cannot be reached; CheckpointError: the store
        cannot be used.
        """

    def load_entries(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FileEntry]:
        """As `load`, with what Kafka had acknowledged. Raises CheckpointError."""

    def entries(self) -> dict[TopicPartition, FileEntry]:
        """All of the group. Raises CheckpointError."""

    def save(
        self,
        checkpoints: Mapping[TopicPartition, Checkpoint],
        acknowledged: Mapping[TopicPartition, Mark] | None = None,
        windows: Mapping[TopicPartition, str] | None = None,
    ) -> object:
        """As `CheckpointStore.save`. `acknowledged`: what Kafka holds, as far as this writer knows.
        `windows`: those of the map of finished offsets that go on from these checkpoints."""
