"""One unit of the journal, as bytes and as fields: 64 bytes, whatever it tells of."""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import NamedTuple

from offsets.types import TopicPartition

_VERSION = 1
# Checksum of the rest; topic's id; partition's key; offset; source time; written time; how many units back
# the previous, the parent and the jump are (0: there is none); depth; partition; flags; version.
_LAYOUT = struct.Struct("<IIQqqqIIIIIBBxx")
SIZE = _LAYOUT.size
_AFTER_CHECKSUM = 4
_NO_TIME = -(2**63)
_FARTHEST = 2**32 - 1

MOVED = 1
"""Flag: `binlane checkpoint` moved the position here."""
CARRIED = 2
"""Flag: a copy at the beginning of a file: who rests is found without the files before."""
LAST, PRESENT, FURTHEST = 4, 8, 16
"""Flags of a copy: which of the partition's heads it is (see chains.State)."""


class Entry(NamedTuple):
    """What is appended: a partition of which everything below `offset` is finished."""

    partition: TopicPartition
    offset: int
    source_ms: int | None = None
    """No record below `offset` happened later than this in its source, in milliseconds since 1970; None: that
    is not known."""
    topic_id: str | None = None
    moved: bool = False
    """True: a command moved the position here."""


class Unit(NamedTuple):
    """What was appended, in the order of `number`. Times are milliseconds since 1970."""

    number: int
    key: int
    """Which group and partition, see `key_of`."""
    partition: int
    topic_id: int
    """A checksum of Kafka's id of the topic; 0: it was not known."""
    offset: int
    source_ms: int | None
    written_ms: int
    flags: int = 0
    previous: int | None = None
    """The number of the partition's unit that was written before this one."""
    parent: int | None = None
    """The number of the nearest one with a source time that was not beyond this offset."""
    jump: int | None = None
    """An earlier parent of parents; such that O(log n) of them lead to any (see chains)."""
    depth: int = 0
    """How many parents lead to the first one."""

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
    """The units around a time of the source: everything below `lower.offset` happened before it, and that
    holds of no unit from `upper` on. Both None: nothing is known of the partition's times."""

    lower: Unit | None
    upper: Unit | None


class NewerUnit(Exception):
    """Written by a later version of binlane."""


def unpacked(data: bytes, number: int) -> Unit | None:
    """The unit of these bytes at this place; None: they are torn, changed, or of another place.

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
    # With the place in it, so that what was left of another file is not taken for this one's.
    return zlib.crc32(rest, number & 0xFFFFFFFF)


def key_of(group: str, partition: TopicPartition) -> int:
    """64 bits that stand for a partition of a group: names have no fixed size."""
    text = f"{group}\0{partition.topic}\0{partition.partition}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def topic_of(topic_id: str | None) -> int:
    """32 bits that stand for Kafka's id of a topic; 0 for none."""
    return 0 if topic_id is None else zlib.crc32(topic_id.encode()) or 1
