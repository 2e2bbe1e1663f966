"""Whether a store keeps what was put first: some take a put's condition and pass over it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from handlers.spark.log.stores.interface import AlreadyThere, FilesError, temporary_name

_NAMES = 3
"""Tried before a store that says of each new one that it is there is refused."""


class StoreOverwrites(FilesError):
    """Of two puts of one path on condition that nothing is there, the store took both."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"{folder}: this store accepted two puts of one file, each on condition that it does not exist "
            "(in S3, If-None-Match: *). One worker could overwrite what another has acknowledged. Use a "
            "store that keeps the condition (Amazon S3, Azure and Google Cloud Storage do; others in newer "
            "versions), HDFS, or a mounted volume"
        )


@dataclass(eq=False)
class Proof:
    """Of one store, before anything is put there; any thread. `put`, `read` and `delete` are those of its
    `Files`, without a proof of their own."""

    put: Callable[[str, bytes], None]
    read: Callable[[str], bytes]
    delete: Callable[[str], None]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _is_proven: bool = field(default=False, init=False)

    def once(self, folder: str) -> None:
        """Put a hidden file in the folder twice; nothing once that was refused.

        Raises StoreOverwrites, FilesError for a store that takes no first put, and what the store raises:
        then it is tried again the next time."""
        if self._is_proven:
            return
        with self._lock:
            if not self._is_proven:
                self._prove(folder)
                self._is_proven = True

    def _put_first(self, folder: str) -> str:
        """Under a name that nobody has. When the first answer is lost, the client asks again, and is told
        that the file is there."""
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
