"""Files with the records of tables that stand still.

The files are a cache of Kafka: nothing is flushed, and each start deletes what an earlier process left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import marshal
import os
import pickle
import weakref
from array import array
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from handlers import Change
from offsets.types import TopicPartition
from worker.formats.interface import Record
from worker.units.parked import ParkedChanges, ParkedRecords, Span

_FILE_BYTES = 32 << 20
"""A file of this size gets no more records. It is deleted when its last record is."""
_OF_SEQUENCE, _OF_RECORD = 1_000, 28
"""Bytes in memory: of a sequence with its chunk, and of each of its items. Measured."""
_SPARED_BYTES = 64 << 20
"""What remains free on the disk, because the checkpoint is on it too."""
_NAME, _LOCK = "parked-", ".lock"


class ParkingFile:
    """A file of one table. It deletes itself when no sequence refers to it any more."""

    __slots__ = ("__weakref__", "_lot", "_user", "gone", "memory", "path", "size")

    def __init__(self, path: Path, lot: ParkingLot) -> None:
        self.path = path
        self.size = 0
        self.memory = 0
        """Bytes that its sequences take in memory, about."""
        self.gone = False
        """Somebody has deleted or replaced it: nothing more is written to it."""
        self._lot = lot
        self._user: int | None = None

    def append(self, data: Sequence[bytes]) -> Span:
        """Append these items. Raises OSError."""
        begin, whole = self.size, b"".join(data)
        try:
            descriptor = self._open(os.O_WRONLY)
        except OSError:
            self.gone = self._user is not None
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
        return Span.of(self, begin, data)

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
        if self._user is None:
            self.path.unlink(missing_ok=True)
            flags |= os.O_CREAT | os.O_EXCL
        descriptor = os.open(self.path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        user = os.fstat(descriptor).st_uid
        if self._user is None:
            self._user = user
        elif user != self._user:
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "another user has replaced it", str(self.path))
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

    def records(self, owner: object, partition: TopicPartition, records: Sequence[Record]) -> ParkedRecords:
        """Write records of one partition and table (`owner`). Raises OSError."""
        records = list(records)
        data = [marshal.dumps((r.offset(), r.key(), r.value(), r.headers(), r.timestamp())) for r in records]
        offsets = array("q", [record.offset() for record in records])
        span = self._file(owner).append(data)
        return ParkedRecords(span, partition, offsets, array("q", map(len, records)))

    def changes(self, owner: object, changes: Sequence[Change]) -> ParkedChanges:
        """Write changes of a table (`owner`). Raises OSError."""
        changes = list(changes)
        bare = (msgspec.structs.replace(change, types=None) for change in changes)
        data = [pickle.dumps(change, pickle.HIGHEST_PROTOCOL) for change in bare]
        span = self._file((owner, "changes")).append(data)  # in one piece with the former ones
        return ParkedChanges(span, [change.types for change in changes])

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

    def _file(self, owner: object) -> ParkingFile:
        """The owner's file, or another one if that is full."""
        file = self._files.get(owner)
        if file is None or file.gone or file.size >= _FILE_BYTES:
            if self._held is None:
                self._begin()
            self._made += 1
            file = self._files[owner] = ParkingFile(self.folder / f"{self._prefix}.{self._made}", self)
        return file

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
