"""One unit of the journal, as bytes and as fields. Every unit has 64 bytes."""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import NamedTuple

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
