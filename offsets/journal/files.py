"""The journal's files: units of 64 bytes by number. Each file is named after its first unit's number."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from offsets.types import TopicPartition

_VERSION = 1
# Checksum of the rest; topic's id; partition's key; offset; source time; written time; partition; flags;
# version.
_LAYOUT = struct.Struct("<IIQqqq16xIBBxx")
SIZE = _LAYOUT.size
_AFTER_CHECKSUM = 4
_KEY = struct.Struct("<8xQ48x")  # the partition's key alone
_NO_TIME = -(2**63)
_MOVED = 1


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
    moved: bool = False

    def packed(self) -> bytes:
        source = _NO_TIME if self.source_ms is None else self.source_ms
        own = (self.topic_id, self.key, self.offset, source, self.written_ms, self.partition)
        rest = _LAYOUT.pack(0, *own, _MOVED if self.moved else 0, _VERSION)[_AFTER_CHECKSUM:]
        return _checksum(rest, self.number).to_bytes(_AFTER_CHECKSUM, "little") + rest


class NewerUnit(Exception):
    """Written by a later version of binlane."""


def unpacked(data: bytes, number: int) -> Unit | None:
    """Decode the unit at this place. None: the bytes are torn, changed, or from another place.

    Raises NewerUnit."""
    if len(data) < SIZE:
        return None
    checksum, topic, key, offset, source, written, partition, flags, version = _LAYOUT.unpack(data)
    if version < 1 or checksum != _checksum(data[_AFTER_CHECKSUM:], number):
        return None
    if version > _VERSION:
        raise NewerUnit(f"units of version {version}; this binlane knows up to {_VERSION}")
    source = None if source == _NO_TIME else source
    return Unit(number, key, partition, topic, offset, source, written, bool(flags & _MOVED))


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


def files_in(folder: Path) -> dict[int, Path]:
    """Find the files by their first unit's number, ascending."""
    try:
        found = [path for path in folder.iterdir() if path.suffix == _SUFFIX and len(path.stem) == _DIGITS]
    except FileNotFoundError:
        return {}
    ours = {int(path.stem): path for path in found if path.stem.isascii() and path.stem.isdigit()}
    return dict(sorted(ours.items()))


def units_of(folder: Path, keys: Container[int]) -> Iterator[Unit]:
    """Yield the valid units of these partitions, newest first. Reads one file at a time."""
    for first, path in reversed(files_in(folder).items()):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # a worker has just removed it
            continue
        found = [key for (key,) in _KEY.iter_unpack(data[: len(data) // SIZE * SIZE])]
        for place in range(len(found) - 1, -1, -1):
            if found[place] in keys:
                unit = unpacked(data[place * SIZE : (place + 1) * SIZE], first + place)
                if unit is not None:
                    yield unit


def last_unit(path: Path) -> tuple[Unit | None, int, int]:
    """Return the last valid unit of a file, where that unit ends, and the file's size."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for count in range(size // SIZE, 0, -1):
            data = os.pread(file.fileno(), SIZE, (count - 1) * SIZE)
            unit = unpacked(data, int(path.stem) + count - 1)
            if unit is not None:
                return unit, count * SIZE, size
        return None, 0, size


def write(folder: Path, first: int, place: int, data: bytes, *, flush: bool) -> None:
    """Write into a file from this place on, and make the file if needed. What was behind the place is cut
    off. On failure, so is the new data. `flush`: to the disk. Raises OSError."""
    path = folder / f"{first:0{_DIGITS}d}{_SUFFIX}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, place)
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], place + written)
        if flush:
            os.fdatasync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, place)
        raise
    finally:
        os.close(descriptor)
