"""Files with the records of tables that stand still.

The files are a cache of Kafka: nothing is flushed, and each start deletes what an earlier process left."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import weakref
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FILE_BYTES = 32 << 20
"""A file of this size gets no more records. It is deleted when its last record is."""
_OF_SEQUENCE, _OF_RECORD = 1_000, 28
"""Bytes in memory: of a sequence with its chunk, and of each of its items. Measured."""
_SPARED_BYTES = 64 << 20
"""What remains free on the disk, because the checkpoint is on it too."""
_SUM = 4
"""Bytes of the checksum before each item."""
_NAME, _LOCK = "parked-", ".lock"


@dataclass(slots=True)
class Span:
    """Consecutive items in a file."""

    file: ParkingFile
    begin: int
    ends: array[int]
    """Where each item ends, relative to `begin`."""
    first: int = 0
    """Where the first item begins, relative to `begin`."""

    def start(self, place: int) -> int:
        return self.ends[place - 1] if place else self.first

    def part(self, places: slice) -> Span:
        first, _, _ = places.indices(len(self.ends))
        return Span(self.file, self.begin, self.ends[places], self.start(first))

    def precedes(self, other: Span) -> bool:
        """Whether the other's items begin where these end."""
        end = self.begin + self.ends[-1] if self.ends else None
        return self.file is other.file and end == other.begin + other.first

    def join(self, other: Span) -> None:
        """Add the items of the span that it precedes."""
        shift = other.begin - self.begin
        self.ends.extend(end + shift for end in other.ends)
        self.file.joined()

    def item(self, place: int) -> bytes:
        """Raises OSError."""
        return next(self.part(slice(place, place + 1)).items())

    def items(self) -> Iterator[bytes]:
        """Read all at once. Raises OSError, also if an item has changed."""
        if not self.ends:
            return
        data = self.file.read(self.begin + self.first, self.ends[-1] - self.first)
        ends = (end - self.first for end in self.ends)
        for start, end in itertools.pairwise(itertools.chain((0,), ends)):
            item = data[start + _SUM : end]
            if zlib.crc32(item) != int.from_bytes(data[start : start + _SUM]):
                raise OSError(f"{self.file.path} is not what was written")
            yield item


class ParkingFile:
    """A file of one table. It deletes itself when no sequence refers to it any more."""

    __slots__ = ("__weakref__", "_identity", "_lot", "gone", "memory", "path", "size")

    def __init__(self, path: Path, lot: ParkingLot) -> None:
        self.path = path
        self.size = 0
        self.memory = 0
        """Bytes that its sequences take in memory, about."""
        self.gone = False
        """Somebody has deleted or replaced it: nothing more is written to it."""
        self._lot = lot
        self._identity: tuple[int, ...] | None = None

    def append(self, items: Iterable[bytes]) -> Span:
        """Append these items. Raises OSError."""
        data = [zlib.crc32(item).to_bytes(_SUM) + item for item in items]
        begin, whole = self.size, b"".join(data)
        try:
            descriptor = self._open(os.O_WRONLY)
        except OSError:
            self.gone = self._identity is not None
            raise
        try:
            free = os.fstatvfs(descriptor)
            if free.f_blocks and free.f_bavail * free.f_frsize < len(whole) + _SPARED_BYTES:
                left = f"less than {_SPARED_BYTES >> 20} MiB of the disk would remain free"
                raise OSError(errno.ENOSPC, left, str(self.path))
            written = os.pwrite(descriptor, whole, begin)  # over what an interrupted call has written
        finally:
            os.close(descriptor)
        if written != len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self.size += written
        self._lot.bytes += written
        self._count(_OF_SEQUENCE + _OF_RECORD * len(data))
        return Span(self, begin, array("q", itertools.accumulate(map(len, data))))

    def joined(self) -> None:
        self._count(-_OF_SEQUENCE)

    def _count(self, memory: int) -> None:
        self.memory += memory
        self._lot.memory += memory

    def read(self, begin: int, length: int) -> bytes:
        """Raises OSError."""
        descriptor = self._open(os.O_RDONLY)
        try:
            data = os.pread(descriptor, length, begin)
        finally:
            os.close(descriptor)
        if len(data) != length:
            raise OSError(f"{self.path} is shorter than what was written")
        return data

    def _open(self, flags: int) -> int:
        """Another user who may write to the folder could put a file there, and reading changes from it would
        run what that user wants. Raises OSError."""
        if self._identity is None:
            self.path.unlink(missing_ok=True)
            flags |= os.O_CREAT | os.O_EXCL
        descriptor = os.open(self.path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        found = os.fstat(descriptor)
        identity = found.st_dev, found.st_ino, found.st_uid
        self._identity = self._identity or identity
        if identity != self._identity:
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "somebody has replaced it", str(self.path))
        return descriptor

    def __del__(self) -> None:
        self._lot.left.append((self.path, self.size, self.memory))


class ParkingLot:
    """The parked records of this process. The fetcher's own, except for reading.

    The system releases the lock of a killed process, so its files are known as nobody's."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the files are made when they are needed."""
        self.bytes = 0
        """The size of all files."""
        self.memory = 0
        """What their offsets and lengths take in memory, about. Until a file is deleted, it counts whole."""
        self.left: deque[tuple[Path, int, int]] = deque()
        """Files that nobody needs any more, with their sizes and memory: `tidy` deletes them."""
        self.folder = folder
        self._prefix = ""
        self._held: int | None = None
        self._made = 0
        self._files: weakref.WeakValueDictionary[object, ParkingFile] = weakref.WeakValueDictionary()

    def append(self, owner: object, data: Iterable[bytes]) -> Span:
        """Append these items to the owner's file, or to another one if that is full. Raises OSError."""
        file = self._files.get(owner)
        if file is None or file.gone or file.size >= _FILE_BYTES:
            if self._held is None:
                self._begin()
            self._made += 1
            file = self._files[owner] = ParkingFile(self.folder / f"{self._prefix}.{self._made}", self)
        return file.append(data)

    def tidy(self) -> None:
        """Delete the files that nobody needs any more."""
        while self.left:
            path, size, memory = self.left.popleft()
            self.bytes -= size
            self.memory -= memory
            with contextlib.suppress(OSError):
                path.unlink()

    def clear(self) -> None:
        """Delete the files of processes that have ended. Ignores errors, because they only take space."""
        for lock in list(self.folder.glob(f"{_NAME}*{_LOCK}")):
            with contextlib.suppress(OSError):
                held = _locked(lock, os.O_RDWR)
                if held is not None:
                    self._delete(lock.name.removesuffix(_LOCK), held)

    def close(self) -> None:
        """Delete everything. Nothing is read any more."""
        if self._held is not None:
            self._delete(self._prefix, self._held)
            self._held = None

    def _delete(self, prefix: str, held: int) -> None:
        """Delete these files, whose lock this process has. The lock goes last: another process may then use
        their names."""
        for path in sorted(self.folder.glob(f"{prefix}.*"), key=lambda path: path.suffix == _LOCK):
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(held)

    def _begin(self) -> None:
        """Make and lock a file whose name begins as those of all others will. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            prefix = f"{_NAME}{number}"
            with contextlib.suppress(FileExistsError):
                held = _locked(self.folder / f"{prefix}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_EXCL)
                if held is not None:
                    self._prefix, self._held = prefix, held
                    return


def _locked(path: Path, flags: int) -> int | None:
    """Open and lock this file for the process's life. None: another process has locked or deleted it."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None
