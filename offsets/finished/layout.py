"""The bytes of a map of finished offsets: segments of records, each of which tells whether it is whole.

A segment begins with its header. The number `used` tells where its last record ends; it is written when a
record is complete, so that a process that is killed leaves no half of one. A byte behind it says that the
whole map was given up.

A record is a header and, for a run, one flag an offset; for a run with wide gaps the offsets stand before
their flags. A window has a record in each segment where it has runs: a byte that tells whether it was ended,
and the last commits that were sent for it. No valid flag or state is zero: what a disk lost is told by that.
"""

from __future__ import annotations

import struct
import sys
import uuid
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from offsets.types import Mark

UNFINISHED, FINISHED = 1, 2
LIVE, ENDED = 1, 2
GIVEN_UP = 2
MOST_MARKS = 4
"""So many of its last commits a window remembers."""

_MAGIC = b"binlane1"
_HEAD = struct.Struct("<8s16sQQQ")  # magic, boot id, writer, number, size
_CHECKSUM = struct.Struct("<I")
USED_WORD = 7
"""Which 64-bit word of the segment `used` is: one that the processor writes at once."""
GIVEN_UP_AT = 64
FIRST_RECORD = 72

_RECORD = struct.Struct("<IQqqqQ")  # kind, window, start, end, first, count
_RECORD_HEAD = 48
_MARK = struct.Struct("<qII")  # offset, checksum, 1 where there is one
_DENSE, _SPARSE, _WINDOW = 1, 2, 3
_MARKS_AT = 8  # in a window's body, behind its state
_WINDOW_BODY = _MARKS_AT + MOST_MARKS * _MARK.size

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FLAGS = bytes((UNFINISHED, FINISHED))


class Torn(ValueError):
    """The bytes are not what was written, or what was written cannot be trusted."""


class Head(NamedTuple):
    """What a segment says of itself."""

    boot: bytes
    """By which one run of the operating system is told from another, 16 bytes."""
    writer: int
    number: int
    """Its place among the writer's segments."""
    size: int
    """Bytes of the file."""


class RunRecord(NamedTuple):
    """Offsets that were fetched together. All from `start` up to `end` are finished but those flagged so."""

    window: int
    start: int
    end: int
    first: int
    sparse: tuple[int, ...] | None
    """The offsets of the flags; None: `first` and those that follow it."""
    flags: bytes


class WindowRecord(NamedTuple):
    window: int
    ended: bool
    marks: tuple[Mark, ...]


def boot_id() -> bytes | None:
    """Of this run of the operating system; None where it does not tell."""
    try:
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return None


def segment_head(head: Head) -> bytes:
    """The first bytes of a segment, before any record."""
    packed = _HEAD.pack(_MAGIC, head.boot, head.writer, head.number, head.size)
    return packed + _CHECKSUM.pack(zlib.crc32(packed))


def run_bytes(record: RunRecord) -> tuple[bytes, int]:
    """The record, padded to whole words, and where its flags begin in it."""
    window, start, end, first, sparse, flags = record
    kind, offsets = _DENSE, b""
    if sparse is not None:
        kind, offsets = _SPARSE, struct.pack(f"<{len(sparse)}q", *sparse)
    head = _head((kind, window, start, end, first, len(flags)), offsets)
    return _padded(head + offsets + flags), len(head) + len(offsets)


def window_bytes(window: int, marks: tuple[Mark, ...]) -> tuple[bytes, int]:
    """The record of a window that lives, and where its state stands in it."""
    slots = b"".join(mark_bytes(mark) for mark in marks).ljust(MOST_MARKS * _MARK.size, b"\0")
    body = bytes((LIVE,)).ljust(_MARKS_AT, b"\0") + slots
    return _head((_WINDOW, window, 0, 0, 0, len(body))) + body, _RECORD_HEAD


def mark_bytes(mark: Mark) -> bytes:
    """As it stands in a window's record."""
    return _MARK.pack(mark.offset, mark.checksum or 0, 1)


def mark_place(slot: int) -> int:
    """Where a window's record has this mark, behind its state."""
    return _MARKS_AT + slot * _MARK.size


def records(data: bytes, writer: int, number: int, boot: bytes) -> Iterator[RunRecord | WindowRecord]:
    """What a segment holds.

    Raises Torn: it is cut, damaged, of another run of the operating system, or was given up."""
    packed = data[: _HEAD.size]
    if len(data) < FIRST_RECORD or packed[: len(_MAGIC)] != _MAGIC:
        raise Torn("it has no header")
    if _CHECKSUM.unpack_from(data, _HEAD.size)[0] != zlib.crc32(packed):
        raise Torn("its header does not match its checksum")
    head = Head(*_HEAD.unpack(packed)[1:])
    if (head.writer, head.number) != (writer, number):
        raise Torn("it is another one under this name")
    if head.boot != boot:
        raise Torn("the machine has been started anew since, or it is another one")
    if head.size != len(data):
        raise Torn(f"it has {len(data)} bytes, {head.size} were written")
    if data[GIVEN_UP_AT] == GIVEN_UP:
        raise Torn("its worker had given it up")
    used = int.from_bytes(data[USED_WORD * 8 : USED_WORD * 8 + 8], sys.byteorder)
    if not FIRST_RECORD <= used <= len(data):
        raise Torn("it does not tell where it ends")
    place = FIRST_RECORD
    while place < used:
        record, place = _record(data, place, used)
        yield record


def _record(data: bytes, place: int, used: int) -> tuple[RunRecord | WindowRecord, int]:
    """The record at this place, and where the next one is."""
    body = place + _RECORD_HEAD
    if body > used:
        raise Torn("a record is cut off")
    kind, window, start, end, first, count = _RECORD.unpack_from(data, place + _CHECKSUM.size)
    flags_at = body + (8 * count if kind == _SPARSE else 0)
    stop = flags_at + count
    if stop > used:
        raise Torn("a record is cut off")
    checked = data[place + _CHECKSUM.size : flags_at]
    if _CHECKSUM.unpack_from(data, place)[0] != zlib.crc32(checked):
        raise Torn("a record does not match its checksum")
    after = stop + -stop % 8
    if kind == _WINDOW:
        return _window(window, data[body:stop]), after
    flags = data[flags_at:stop]
    if flags.strip(_FLAGS):
        raise Torn("a flag is neither of an offset that is finished nor of one that is not")
    sparse = struct.unpack_from(f"<{count}q", data, body) if kind == _SPARSE else None
    offsets = sparse if sparse is not None else (first, first + count - 1)
    if kind not in {_DENSE, _SPARSE} or not count or not start <= offsets[0] <= offsets[-1] < end:
        raise Torn("a record makes no sense")
    if any(before >= after for before, after in pairwise(sparse or ())):
        raise Torn("a record makes no sense")
    return RunRecord(window, start, end, first, sparse, flags), after


def _window(window: int, body: bytes) -> WindowRecord:
    if len(body) != _WINDOW_BODY or body[0] not in {LIVE, ENDED}:
        raise Torn("a window does not tell whether it was ended")
    slots = (_MARK.unpack_from(body, mark_place(slot)) for slot in range(MOST_MARKS))
    marks = tuple(Mark(offset, checksum) for offset, checksum, is_one in slots if is_one == 1)
    return WindowRecord(window, body[0] == ENDED, marks)


def _head(fields: tuple[int, int, int, int, int, int], offsets: bytes = b"") -> bytes:
    packed = _RECORD.pack(*fields)
    return _CHECKSUM.pack(zlib.crc32(offsets, zlib.crc32(packed))) + packed


def _padded(record: bytes) -> bytes:
    return record + bytes(-len(record) % 8)
