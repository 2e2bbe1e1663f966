"""The interface of checkpoint stores, and locks that let only one worker have an identity in a store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from offsets.file_lock import FileLock
from offsets.stores.file_format import FileEntry
from offsets.types import Checkpoint, Mark, TopicPartition


class CheckpointError(Exception):
    """A store could not be read or written. The text says which, where, why, and what to do about it."""


class StoreAway(CheckpointError):
    """The store does not answer, or another process has it. The same call may succeed later."""


class OwnStore(Protocol):
    """A group's store beside Kafka: what is finished of each partition, and what Kafka has acknowledged. Safe
    to use from several threads."""

    @property
    def name(self) -> str:
        """`file` or `sql`: the metrics' label `store`, like `kafka` of Kafka's."""

    @property
    def title(self) -> str:
        """Its kind, for people: `local file`, `database`."""

    @property
    def place(self) -> str:
        """Where it is, for people; without passwords."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Damage that was found since the store was made, each once."""

    def open(self) -> None:
        """Become the only process with its identity, if it has one, until `close` or the process's end.

        Raises StoreAway: another one has it, or the store cannot be reached; CheckpointError: the store
        cannot be used."""

    def load_entries(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FileEntry]:
        """Return the checkpoints of these partitions, with the commits that Kafka had acknowledged. Unknown
        partitions are left out. Raises CheckpointError."""

    def entries(self) -> dict[TopicPartition, FileEntry]:
        """Return all entries of the group. Raises CheckpointError."""

    def save(
        self,
        checkpoints: Mapping[TopicPartition, Checkpoint],
        acknowledged: Mapping[TopicPartition, Mark] | None = None,
        windows: Mapping[TopicPartition, str] | None = None,
    ) -> object:
        """Replace the checkpoints of these partitions. Other partitions stay as they are.

        On return, they are as durable as this store can make them. All or nothing, as far as the store can.
        `acknowledged`: Kafka's commits, as far as this writer knows. `windows`: the windows of the map of
        finished offsets that continue from these checkpoints.

        Raises CheckpointError: they are not known to be saved. The previous checkpoints still count."""

    def close(self) -> None:
        """Release threads and files. May be called twice."""


def number_of(group: str, identity: str) -> int:
    """Return 64 bits, signed, that identify the identity within its group."""
    digest = hashlib.blake2b(f"{group}\0{identity}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def held_by_another(place: str, identity: str, group: str) -> StoreAway:
    """Return the error of a store whose identity another process has."""
    return StoreAway(
        f"another worker with group.instance.id {identity} of group {group} uses {place}: end it, or give "
        "each worker its own id"
    )


def identity_lock(folder: Path, group: str, identity: str) -> FileLock:
    """Return the lock of an identity in a folder."""
    return FileLock(folder / f"worker-{number_of(group, identity) & (2**64 - 1):016x}.lock")
