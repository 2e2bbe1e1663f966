"""The bytes of a map of finished offsets: segments of records, with checksums.

A segment starts with its header. The number `used` is the end of its last record. It is written after the
record is complete, so a killed process leaves no partial record. A byte behind it marks the whole map as
given up.

A record is a header. A run's record continues with one flag per offset. With wide gaps, the offsets precede
the flags. A window has a record in each segment with its runs. It shows whether the window was ended, and the
last commits sent for it. Valid flags and states are never zero, so lost pages are detected."""

from __future__ import annotations

import itertools
import re
import struct
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from offsets.types import Mark, OffsetRange

UNFINISHED, FINISHED = 1, 2
OPEN, DONE = bytes((UNFINISHED,)), bytes((FINISHED,))
LIVE, ENDED = 1, 2
GIVEN_UP = 2
MOST_MARKS = 4
"""The number of last commits that a window stores."""

_MAGIC = b"binlane1"
_HEAD = struct.Struct("<8s16sQQQ")  # magic, boot id, writer, number, size
_CHECKSUM = struct.Struct("<I")
USED_WORD = 7
"""Index of the 64-bit word of the segment that contains `used`. The processor writes a word at once."""
GIVEN_UP_AT = 64
FIRST_RECORD = 72

_RECORD = struct.Struct("<IQqqqQ")  # kind, window, start, end, first, count
_RECORD_HEAD = 48
_MARK = struct.Struct("<qII")  # offset, checksum, 1 if the slot is used
_DENSE, _SPARSE, _WINDOW = 1, 2, 3
_MARKS_AT = 8  # in a window's body, behind its state
_WINDOW_BODY = _MARKS_AT + MOST_MARKS * _MARK.size

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STRETCHES = re.compile(re.escape(DONE) + b"+|" + re.escape(OPEN) + b"+")
_range = cast("Callable[[tuple[int, int]], OffsetRange]", partial(tuple.__new__, OffsetRange))
"""Like `OffsetRange._make`, without a Python call for each."""


class Torn(ValueError):
    """The bytes differ from what was written, or what was written cannot be trusted."""


class Head(NamedTuple):
    """The header of a segment."""

    boot: bytes
    """The id of one run of the operating system, 16 bytes."""
    writer: int
    number: int
    """Its place among the writer's segments."""
    size: int
    """Bytes of the file."""


class RunRecord(NamedTuple):
    """Offsets that were fetched together. All from `start` up to `end` are finished, except those flagged."""

    window: int
    start: int
    end: int
    first: int
    sparse: tuple[int, ...] | None
    """The offsets of the flags. None: `first` and those after it, up to `end`."""
    flags: bytes


class WindowRecord(NamedTuple):
    window: int
    ended: bool
    marks: tuple[Mark, ...]


def finished_ranges(
    start: int, end: int, first: int, sparse: Sequence[int] | None, flags: bytes
) -> list[OffsetRange]:
    """Return the ranges of a run without an unfinished offset, ascending and separate (see `RunRecord`). With
    the unfinished offsets, they cover `start` to `end`. 0.2 us a range."""
    if sparse is None:
        bounds = list(itertools.accumulate(map(len, _STRETCHES.findall(flags)), initial=first))
        if flags[0] == FINISHED:
            bounds[0] = start  # offsets before the run's first belong to its first range
        elif first > start:  # or are a separate range
            bounds.insert(0, start)
        else:
            del bounds[0]
        return list(map(_range, zip(bounds[::2], bounds[1::2], strict=False)))  # the last may be unfinished
    ranges, begin = [], start
    for offset, flag in zip(sparse, flags, strict=True):
        if flag == UNFINISHED:
            if offset > begin:
                ranges.append(OffsetRange(begin, offset))
            begin = offset + 1
    if end > begin:
        ranges.append(OffsetRange(begin, end))
    return ranges


def boot_id() -> bytes | None:
    """Return the id of this run of the operating system, or None if it has none."""
    try:
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return None


def segment_head(head: Head) -> bytes:
    """Return the first bytes of a segment, before any record."""
    packed = _HEAD.pack(_MAGIC, head.boot, head.writer, head.number, head.size)
    return packed + _CHECKSUM.pack(zlib.crc32(packed))


def run_bytes(record: RunRecord) -> tuple[bytes, int]:
    """Return the record, padded to whole words, and the place of its flags."""
    window, start, end, first, sparse, flags = record
    kind, offsets = _DENSE, b""
    if sparse is not None:
        kind, offsets = _SPARSE, struct.pack(f"<{len(sparse)}q", *sparse)
    head = _head((kind, window, start, end, first, len(flags)), offsets)
    written = head + offsets + flags
    return written + bytes(-len(written) % 8), len(head) + len(offsets)


def window_bytes(window: int, marks: tuple[Mark, ...]) -> tuple[bytes, int]:
    """Return the record of a live window, and the place of its state."""
    slots = b"".join(mark_bytes(mark) for mark in marks).ljust(MOST_MARKS * _MARK.size, b"\0")
    body = bytes((LIVE,)).ljust(_MARKS_AT, b"\0") + slots
    return _head((_WINDOW, window, 0, 0, 0, len(body))) + body, _RECORD_HEAD


def mark_bytes(mark: Mark) -> bytes:
    """Return the mark's bytes in a window's record."""
    return _MARK.pack(mark.offset, mark.checksum or 0, 1)


def mark_place(slot: int) -> int:
    """Return the place of this mark in a window's record, behind its state."""
    return _MARKS_AT + slot * _MARK.size


def records(data: bytes, writer: int, number: int, boot: bytes) -> Iterator[RunRecord | WindowRecord]:
    """Yield the records of a segment.

    Raises Torn if it is cut off, damaged, given up, or from another run of the operating system."""
    packed = data[: _HEAD.size]
    if len(data) < FIRST_RECORD or packed[: len(_MAGIC)] != _MAGIC:
        raise Torn("it has no header")
    if _CHECKSUM.unpack_from(data, _HEAD.size)[0] != zlib.crc32(packed):
        raise Torn("its header does not match its checksum")
    head = Head(*_HEAD.unpack(packed)[1:])
    if (head.writer, head.number) != (writer, number):
        raise Torn("it is another file under this name")
    if head.boot != boot:
        raise Torn("the machine was rebooted since, or is another one")
    if head.size != len(data):
        raise Torn(f"it has {len(data)} bytes, but {head.size} were written")
    if data[GIVEN_UP_AT] == GIVEN_UP:
        raise Torn("its worker gave it up")
    used = int.from_bytes(data[USED_WORD * 8 : USED_WORD * 8 + 8], sys.byteorder)
    if not FIRST_RECORD <= used <= len(data):
        raise Torn("it does not say where it ends")
    place = FIRST_RECORD
    while place < used:
        record, place = _record(data, place, used)
        yield record


def _record(data: bytes, place: int, used: int) -> tuple[RunRecord | WindowRecord, int]:
    """Return the record at this place, and the place of the next one."""
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
    if flags.strip(OPEN + DONE):
        raise Torn("a flag means neither a finished nor an unfinished offset")
    sparse = struct.unpack_from(f"<{count}q", data, body) if kind == _SPARSE else None
    offsets = sparse if sparse is not None else (first, first + count - 1)
    if kind not in {_DENSE, _SPARSE} or not count or not start <= offsets[0] <= offsets[-1] < end:
        raise Torn("a record contradicts itself")
    if any(before >= after for before, after in itertools.pairwise(sparse or ())):
        raise Torn("a record contradicts itself")
    return RunRecord(window, start, end, first, sparse, flags), after


def _window(window: int, body: bytes) -> WindowRecord:
    if len(body) != _WINDOW_BODY or body[0] not in {LIVE, ENDED}:
        raise Torn("a window does not say whether it was ended")
    slots = (_MARK.unpack_from(body, mark_place(slot)) for slot in range(MOST_MARKS))
    marks = tuple(Mark(offset, checksum) for offset, checksum, is_one in slots if is_one == 1)
    return WindowRecord(window, body[0] == ENDED, marks)


def _head(fields: tuple[int, int, int, int, int, int], offsets: bytes = b"") -> bytes:
    packed = _RECORD.pack(*fields)
    return _CHECKSUM.pack(zlib.crc32(offsets, zlib.crc32(packed))) + packed
