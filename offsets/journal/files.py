"""The journal's files: units of 64 bytes by number. Each file is named after its first unit's number."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from offsets.stores.file import flush_directory
from offsets.types import TopicPartition

_VERSION = 1
# Checksum of the rest; topic's id; partition's key; offset; source time; written time; distances in units
# back to the previous unit, the parent and the jump (0: none); depth; partition; flags; version.
_LAYOUT = struct.Struct("<IIQqqqIIIIIBBxx")
SIZE = _LAYOUT.size
_AFTER_CHECKSUM = 4
_NO_TIME = -(2**63)
_FARTHEST = 2**32 - 1

MOVED = 1
"""Flag: `binlane checkpoint` moved the position here."""
CARRIED = 2
"""Flag: a copy at the start of a file, for partitions whose units are in earlier files."""
LAST, PRESENT, FURTHEST = 4, 8, 16
"""Flags of a copy: which of the partition's heads it is (see chains.State)."""


class Entry(NamedTuple):
    """An entry to append: a partition in which everything below `offset` is finished."""

    partition: TopicPartition
    offset: int
    source_ms: int | None = None
    """No record below `offset` has a later source time, in milliseconds since 1970. None: the time is
    unknown."""
    topic_id: str | None = None
    moved: bool = False
    """True: a command moved the position here."""


class Unit(NamedTuple):
    """An appended entry, in the order of `number`. Times are milliseconds since 1970."""

    number: int
    key: int
    """The group and partition, see `key_of`."""
    partition: int
    topic_id: int
    """A checksum of Kafka's id of the topic; 0: it was unknown."""
    offset: int
    source_ms: int | None
    written_ms: int
    flags: int = 0
    previous: int | None = None
    """The number of the partition's previous unit."""
    parent: int | None = None
    """The number of the nearest earlier unit with a source time and no higher offset."""
    jump: int | None = None
    """An earlier ancestor. O(log n) jumps and parents lead to any unit (see chains)."""
    depth: int = 0
    """The number of parents up to the first unit."""

    @property
    def moved(self) -> bool:
        return bool(self.flags & MOVED)

    def packed(self) -> bytes:
        source = _NO_TIME if self.source_ms is None else self.source_ms
        own = (self.topic_id, self.key, self.offset, source, self.written_ms)
        backs = map(self._back, (self.previous, self.parent, self.jump))
        packed = _LAYOUT.pack(0, *own, *backs, self.depth, self.partition, self.flags, _VERSION)
        rest = packed[_AFTER_CHECKSUM:]
        return _checksum(rest, self.number).to_bytes(_AFTER_CHECKSUM, "little") + rest

    def _back(self, number: int | None) -> int:
        back = 0 if number is None else self.number - number
        return back if back <= _FARTHEST else 0


class Found(NamedTuple):
    """The units around a source time. Everything below `lower.offset` happened before it; this is true for no
    unit from `upper` on. Both None: none of the partition's times are known."""

    lower: Unit | None
    upper: Unit | None


class NewerUnit(Exception):
    """Written by a later version of binlane."""


def unpacked(data: bytes, number: int) -> Unit | None:
    """Decode the unit at this place. None: the bytes are torn, changed, or from another place.

    Raises NewerUnit."""
    if len(data) < SIZE:
        return None
    checksum, topic, key, offset, source, written, *rest = _LAYOUT.unpack(data)
    *backs, depth, partition, flags, version = rest
    if version < 1 or checksum != _checksum(data[_AFTER_CHECKSUM:], number):
        return None
    if version > _VERSION:
        raise NewerUnit(f"units of version {version}; this binlane knows up to {_VERSION}")
    source = None if source == _NO_TIME else source
    previous, parent, jump = (number - back if back else None for back in backs)
    return Unit(number, key, partition, topic, offset, source, written, flags, previous, parent, jump, depth)


def _checksum(rest: bytes, number: int) -> int:
    # Includes the place, so remains of another file do not look like this file's units.
    return zlib.crc32(rest, number & 0xFFFFFFFF)


def key_of(group: str, partition: TopicPartition) -> int:
    """Return 64 bits that identify a partition of a group, because names have no fixed size."""
    text = f"{group}\0{partition.topic}\0{partition.partition}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def topic_of(topic_id: str | None) -> int:
    """Return 32 bits that identify Kafka's id of a topic; 0 for none."""
    return 0 if topic_id is None else zlib.crc32(topic_id.encode()) or 1


_SUFFIX = ".journal"
_DIGITS = 20
_MOST_OPEN = 32
_BLOCK_UNITS = 1024


class UnitFiles:
    """A folder of files. Numbers only grow. What was removed, cut off or damaged is read as None.

    One process at a time appends. Any process may read meanwhile. One thread at a time. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reads = 0
        """The number of units that were read one by one."""
        self._firsts: list[int] = []  # ascending: the names
        self._open: OrderedDict[int, int] = OrderedDict()  # first -> descriptor, last used one last

    def look(self) -> None:
        """Find the existing files; O(files)."""
        self.close()
        try:
            names = [path.stem for path in self.folder.iterdir() if path.suffix == _SUFFIX]
        except FileNotFoundError:
            names = []
        ours = (name for name in names if name.isascii() and name.isdigit() and len(name) == _DIGITS)
        self._firsts = sorted(int(name) for name in ours)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The number of each file's first unit."""
        return tuple(self._firsts)

    def path(self, first: int) -> Path:
        return self.folder / f"{first:0{_DIGITS}d}{_SUFFIX}"

    def end(self, first: int) -> int:
        """Return one more than the number of a file's last whole unit."""
        return first + self.size(first) // SIZE

    def size(self, first: int) -> int:
        """Return the bytes of a file, 0 if it is gone."""
        descriptor = self._descriptor(first)
        return 0 if descriptor is None else os.fstat(descriptor).st_size

    def is_gone(self, first: int) -> bool:
        """Whether another process removed the file, or moved it or its folder away."""
        descriptor = self._descriptor(first)
        if descriptor is None:
            return True
        try:
            return not os.path.samestat(os.fstat(descriptor), self.path(first).stat())
        except FileNotFoundError:
            return True

    def read(self, number: int) -> Unit | None:
        """Read one unit. None: it does not exist."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return None
        first = self._firsts[place]
        descriptor = self._descriptor(first)
        if descriptor is None:
            return None
        self.reads += 1
        return unpacked(os.pread(descriptor, SIZE, (number - first) * SIZE), number)

    def scan(self, first: int, number: int | None = None) -> Iterator[Unit]:
        """Yield the valid units of a file from this number on, ascending."""
        number = first if number is None else number
        end = self.end(first)
        while number < end and (descriptor := self._descriptor(first)) is not None:
            block = os.pread(descriptor, min(_BLOCK_UNITS, end - number) * SIZE, (number - first) * SIZE)
            for place in range(0, len(block) - SIZE + 1, SIZE):
                unit = unpacked(block[place : place + SIZE], number + place // SIZE)
                if unit is not None:
                    yield unit
            number += _BLOCK_UNITS

    def cut(self, first: int) -> int:
        """Cut off a torn or damaged end of a file. Returns the number of cut bytes."""
        descriptor = self._descriptor(first)
        if descriptor is None:
            return 0
        size = os.fstat(descriptor).st_size
        whole = size // SIZE
        while whole and unpacked(os.pread(descriptor, SIZE, (whole - 1) * SIZE), first + whole - 1) is None:
            whole -= 1
        if whole * SIZE < size:
            os.ftruncate(descriptor, whole * SIZE)
        return size - whole * SIZE

    def write(self, first: int, number: int, data: bytes) -> None:
        """Write whole units into a file from this number on, and make the file if needed. On failure, the
        file keeps its length."""
        is_new = first not in self._firsts
        descriptor = self._descriptor(first, make=is_new)
        if descriptor is None:
            raise FileNotFoundError(2, "it was removed", str(self.path(first)))
        place = (number - first) * SIZE
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], place + written)
        except OSError:
            with contextlib.suppress(OSError):
                if is_new:
                    self._forget(first)
                    self.path(first).unlink()
                else:
                    os.ftruncate(descriptor, place)
            raise
        if is_new:
            self._firsts.append(first)

    def flush(self, first: int, *, made: bool = False) -> None:
        """Flush a file to the disk. `made`: also its name."""
        descriptor = self._descriptor(first)
        if descriptor is not None:
            os.fdatasync(descriptor)
        if made:
            flush_directory(self.folder)

    def remove(self, first: int) -> None:
        """Remove a file, which may already be gone."""
        self._forget(first)
        self.path(first).unlink(missing_ok=True)
        self._firsts.remove(first)

    def add(self, first: int) -> bool:
        """Add a file that another process has started. False: it does not exist."""
        if not self.path(first).exists():
            return False
        self._firsts.append(first)
        return True

    def close(self) -> None:
        """Close the open files. They are reopened when needed."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, first: int, *, make: bool = False) -> int | None:
        known = self._open.get(first)
        if known is not None:
            self._open.move_to_end(first)
            return known
        try:
            descriptor = self._opened(first, make=make)
        except FileNotFoundError:
            return None
        self._open[first] = descriptor
        if len(self._open) > _MOST_OPEN:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    def _opened(self, first: int, *, make: bool) -> int:
        flags = os.O_CLOEXEC | (os.O_CREAT if make else 0)
        try:
            return os.open(self.path(first), os.O_RDWR | flags, 0o600)
        except OSError as error:
            is_read_only = isinstance(error, PermissionError) or error.errno == errno.EROFS
            if make or not is_read_only:
                raise
            return os.open(self.path(first), os.O_RDONLY | flags)

    def _forget(self, first: int) -> None:
        descriptor = self._open.pop(first, None)
        if descriptor is not None:
            os.close(descriptor)
