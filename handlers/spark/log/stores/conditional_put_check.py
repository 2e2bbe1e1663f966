"""Checks if a store keeps the first of two puts. Some accept a put's condition and ignore it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from handlers.spark.log.stores.interface import AlreadyThere, FilesError, temporary_name

_NAMES = 3
"""Number of new names after which a store that reports each as existing is refused."""


class StoreOverwrites(FilesError):
    """The store accepted two puts of one path, although each had the condition that the path is free."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"{folder}: this store accepted two puts of one file, each on condition that it does not exist "
            "(in S3, If-None-Match: *). One worker could overwrite what another has acknowledged. Use a "
            "store that keeps the condition (Amazon S3, Azure and Google Cloud Storage do; others in newer "
            "versions), HDFS, or a mounted volume"
        )


@dataclass(eq=False)
class Proof:
    """Checks one store before anything is put there. Any thread. `put`, `read` and `delete` are those of its
    `Files`, without a check of their own."""

    put: Callable[[str, bytes], None]
    read: Callable[[str], bytes]
    delete: Callable[[str], None]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _is_proven: bool = field(default=False, init=False)

    def once(self, folder: str) -> None:
        """Put a hidden file into the folder twice. Does nothing after the second put was refused once.

        Raises StoreOverwrites, FilesError for a store that refuses the first put, and what the store raises.
        The next call then tries again."""
        if self._is_proven:
            return
        with self._lock:
            if not self._is_proven:
                self._prove(folder)
                self._is_proven = True

    def _put_first(self, folder: str) -> str:
        """Put a file under a new name. If the first answer is lost, the client repeats the request, and the
        store reports that the file exists."""
        for _ in range(_NAMES):
            path = f"{folder}/{temporary_name()}"
            try:
                self.put(path, b"first")
            except AlreadyThere:
                self.delete(path)
            else:
                return path
        raise FilesError(
            f"{folder}: this store reported {_NAMES} new names, one after the other, as existing files. If "
            "that continues, check what is between binlane and the store (a proxy that repeats requests?)"
        )

    def _prove(self, folder: str) -> None:
        path = self._put_first(folder)
        try:
            try:
                self.put(path, b"second")
            except AlreadyThere:
                is_kept = self.read(path) == b"first"
            else:
                is_kept = False
        finally:
            self.delete(path)
        if not is_kept:
            raise StoreOverwrites(folder)
