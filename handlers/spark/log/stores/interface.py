"""The interface of a store, as the segment log needs it, and a check that it keeps the first of two puts.

Some stores accept a put's condition and ignore it."""

from __future__ import annotations

import io
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

# The leading dot hides it from Spark and from `ls`.
_TEMPORARY = re.compile(r"\.binlane-[0-9a-f]{32}\.tmp")


class FilesError(OSError):
    """A store refused an operation. The message contains the path, the problem and what to do."""

    def __init__(self, told: str, *, is_outage: bool = False) -> None:
        super().__init__(told)
        self.is_outage = is_outage
        """Whether the store is full or out of order. This is temporary and does not depend on the path."""


class AlreadyThere(FileExistsError):
    """The target's place is taken. Nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} already exists")
        self.path = path


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder in a folder."""

    name: str
    size: int
    """Bytes. 0 for a folder."""
    modified_ms: int
    """Milliseconds since 1970 in UTC by the store's clock. 0 if the store does not say."""
    is_folder: bool


class Files(Protocol):
    """A store. Paths are complete, as Spark takes them: URIs, or plain paths.

    Any thread may call any method. Each method also raises FilesError if the store refuses, and the store's
    own error if its connection is gone."""

    def prove(self, folder: str) -> None:
        """Check once that the store refuses to put an existing file. If not called, the first put does it.
        Raises FilesError (StoreOverwrites) if the store overwrites."""

    def list(self, folder: str) -> Sequence[Entry]:
        """List the entries directly in a folder, in any order. Empty if the folder does not exist."""

    def list_after(self, folder: str, name: str) -> Iterator[Entry]:
        """Yield those after a name, in order of names: a few of a long list cost little. Has no folders in
        object stores."""

    def read(self, path: str) -> bytes:
        """Read a whole file. Raises FileNotFoundError."""

    def open(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """Open a file for reading at any place, so that a Parquet footer costs one small read. Raises
        FileNotFoundError."""

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Create a file, and its folder if it does not exist.

        Nobody ever sees a partial file, and when this returns, it survives a power loss. If several put the
        same path at once, one succeeds. For the others, and if it existed before, this raises
        AlreadyThere."""

    def replace(self, path: str, data: bytes) -> None:
        """Create a file in a folder that exists, or replace it. Readers see the old file or the new one."""

    def delete(self, path: str) -> None:
        """Remove a file, or a folder if it is empty. A missing one is no error."""

    def retire(self, path: str) -> None:
        """Set a file's time stamp to 1970-01-01, if the store supports it. Readers then skip it, and those
        that are about to read it still find it. A missing file is no error."""

    def delete_tree(self, folder: str) -> None:
        """Remove a folder with its content. A missing one is no error."""

    def rename(self, source: str, target: str) -> None:
        """Move a folder. Raises AlreadyThere, and FileNotFoundError without the source."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""


def scheme_of(uri: str) -> str:
    """`s3a` of s3a://bucket/lake. Empty for a plain path."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.\-]*):", uri)
    return found[1].lower() if found else ""


def temporary_name() -> str:
    """A unique name that Spark does not read."""
    return f".binlane-{uuid.uuid4().hex}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a writer was about to put this file. If it is old, it is left over."""
    return _TEMPORARY.fullmatch(name) is not None


class RandomAccess(io.RawIOBase):
    """Reads only the requested bytes. For `pyarrow.PythonFile`."""

    def __init__(self, size: int, read_at: Callable[[int, int], bytes]) -> None:
        """`size`: of the file, in bytes. `read_at`: returns the bytes from an offset on. Their number is
        never 0, and they never go beyond the end."""
        super().__init__()
        self._size = size
        self._read_at = read_at
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._size - self._at, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        found = self._read_at(self._at, wanted) if wanted else b""
        self._at += len(found)
        return found


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
