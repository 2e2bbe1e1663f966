"""Locks that let only one worker with an identity write to a store. They end with their process."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from offsets.stores.interface import StoreAway


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


class FileLock:
    """A lock on its own file in a folder. The system releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @classmethod
    def of(cls, folder: Path, group: str, identity: str) -> FileLock:
        return cls(folder / f"worker-{number_of(group, identity) & (2**64 - 1):016x}.lock")

    def take(self) -> bool:
        """Take the lock. Returns False if another process has it. Raises OSError."""
        if self._descriptor is not None:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
