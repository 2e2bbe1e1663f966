"""Records of one table from one poll, and the barrier of a statement about several tables."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from confluent_kafka import Message

from handlers import Change
from offsets.run import Run
from worker.formats.interface import Record
from worker.units.assigned_partition import Assignment
from worker.units.parked import ParkedChanges, ParkedRecords
from worker.units.piece_order import AnyRun
from worker.units.table import Table

RECORD_OVERHEAD = 256
"""Bytes counted for each record beside its value. These are confluent_kafka's Record object (136 B), the
headers of its value and key objects (33 B each), and list slots. Without them, small records would take twice
the memory that `max_bytes` allows."""

_MOST_JOINED = 1_000
"""The most records of parked chunks that become one. To take a batch from a chunk copies the offsets of the
rest."""

# Called through the class, which saves a look-up for each record.
_offset = cast(Callable[[Record], int], Message.offset)
_Member = TypeVar("_Member")
"""The unit of a table."""


def lengths(records: Sequence[Record]) -> Iterable[int]:
    """The lengths of the records' values, in bytes. Reads no file."""
    return records.lengths if isinstance(records, ParkedRecords) else map(len, records)


def offsets(records: Sequence[Record]) -> Iterable[int]:
    """The offsets of the records. Reads no file."""
    return records.offsets if isinstance(records, ParkedRecords) else map(_offset, records)


def offset_at(records: Sequence[Record], place: int) -> int:
    """The offset of the record at this place. Reads no file."""
    return records.offsets[place] if isinstance(records, ParkedRecords) else _offset(records[place])


def first_of(records: Sequence[Record]) -> Record | None:
    """The first record. None: its file cannot be read."""
    try:
        return records[0]
    except Exception:
        return None


def place_of(records: Sequence[Record], offset: int) -> int | None:
    """The place of the record with this offset, or None. Reads no file."""
    place = count_before(records, offset)
    return place if place < len(records) and offset_at(records, place) == offset else None


def count_before(records: Sequence[Record], offset: int) -> int:
    """How many of the records are before this offset. Reads no file."""
    if isinstance(records, ParkedRecords):
        return bisect_left(records.offsets, offset)
    return bisect_left(records, offset, key=_offset)


def whole_records(chunks: Sequence[Chunk], following: int | None) -> int:
    """Return how many records of a batch precede the transaction that goes on behind it: 0 if all are of that
    one. `following`: the offset of the next record of its last record's partition; None: it may come."""
    last, count = chunks[-1].assignment, sum(len(chunk.messages) for chunk in chunks)
    known = last.transactions
    begin = known.begin(following, offset_at(chunks[-1].messages, -1))
    for chunk in reversed(chunks):
        before = count_before(chunk.messages, begin) if chunk.assignment is last else len(chunk.messages)
        count -= len(chunk.messages) - before
        if before:
            break
    return count


class Chunk:
    """Records of one table from one poll of one partition, in offset order."""

    __slots__ = (
        "alone",
        "assignment",
        "barrier",
        "bytes",
        "changes",
        "ends",
        "enqueued",
        "fetched",
        "in_file",
        "messages",
        "parked",
        "run",
        "table",
    )

    def __init__(
        self,
        assignment: Assignment,
        run: AnyRun,
        messages: Sequence[Record],
        alone: bool = False,
        fetched: float = 0.0,
        *,
        size: int | None = None,
    ) -> None:
        """`size`: the bytes of the records' values, if they are already counted."""
        self.assignment = assignment
        self.run = run
        self.messages = messages
        size = sum(lengths(messages)) if size is None else size
        self.bytes = size + RECORD_OVERHEAD * len(messages)
        self.changes: Sequence[Change] | None = None
        """The changes of all its records, once they are decoded."""
        self.ends: Sequence[int] = ()
        """For each record, the number of `changes` up to its end."""
        self.table: Table | None = None
        """The table whose rules were used to decode them."""
        self.parked = False
        """Its records are in a file, and do not count against the bounds."""
        self.in_file: tuple[ParkedRecords, ParkedChanges | None] | None = None
        """The written records and changes, once they are read back. They need not be written again."""
        self.enqueued = 0.0
        self.fetched = fetched
        """Seconds since 1970."""
        self.alone = alone
        """DDL: one record that is a batch of its own. With order by row, it is also the table's barrier."""
        self.barrier: Barrier[Any] | None = None
        """The barrier that it shares with other tables of its statement."""

    def finish(self, messages: Sequence[Record]) -> int:
        """Mark these records as finished, each once. Returns how many now count as finished."""
        self.run.finish_records(messages, _offset)
        return len(messages)

    def leave(self) -> tuple[int, int]:
        """Return the (records, bytes) that it releases, when nothing more happens to it or it is parked."""
        return (0, 0) if self.parked else (len(self.messages), self.bytes)

    def enter(self) -> tuple[int, int]:
        """Return the (records, bytes) that it takes again: the inverse of `leave`."""
        return len(self.messages), self.bytes

    def park(self, records: ParkedRecords, changes: ParkedChanges | None) -> tuple[int, int]:
        """Keep these instead of what is in memory. Returns the (records, bytes) that it releases."""
        released = self.leave()
        self.messages, self.parked = records, True
        if changes is not None:
            self.changes = changes
        return released

    def join(self, other: Chunk) -> bool:
        """Add the records of the next chunk in the queue, if both are parked and may be one. Otherwise, each
        record of a slow topic would take the memory of a chunk."""
        records, more, tracker = self.messages, other.messages, self.assignment.tracker
        if (
            not (self.parked and isinstance(records, ParkedRecords))
            or not (other.parked and isinstance(more, ParkedRecords))
            or self.alone
            or other.alone
            or len(records) + len(more) > _MOST_JOINED
            # Not of another partition, from before the tracker was restarted, or pieces of split records.
            or not (self.run is tracker or (isinstance(self.run, Run) and tracker.has(self.run)))
            or not (isinstance(other.run, Run) and tracker.has(other.run))
            or not records.span.precedes(more.span)
            or not self._join_changes(other)
        ):
            return False
        records.join(more)
        self.bytes += other.bytes
        self.run = tracker
        return True

    def _join_changes(self, other: Chunk) -> bool:
        changes, more = self.changes, other.changes
        if changes is None and more is None:
            return True
        if (
            not isinstance(changes, ParkedChanges)
            or not isinstance(more, ParkedChanges)
            or self.table is not other.table
            or not changes.span.precedes(more.span)
        ):
            return False
        self.ends = array("q", self.ends)
        self.ends.extend(len(changes) + end for end in other.ends)
        changes.join(more)
        return True

    def unpark(self) -> tuple[int, int]:
        """It is in a batch, which must `load` it. Returns the (records, bytes) that it takes."""
        self.parked = False
        return self.enter()

    def load(self) -> None:
        """Read parked records back. Raises OSError."""
        if isinstance(self.messages, ParkedRecords):
            changes = self.changes if isinstance(self.changes, ParkedChanges) else None
            self.in_file = self.messages, changes
            self.messages = list(self.messages)
        if isinstance(self.changes, ParkedChanges):
            self.changes = tuple(self.changes)

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        """Return the first `count` records, and the rest."""
        parts = []
        for messages in (self.messages[:count], self.messages[count:]):
            part = Chunk(self.assignment, self.run, messages, alone=self.alone)
            part.enqueued, part.fetched = self.enqueued, self.fetched
            part.barrier, part.parked = self.barrier, self.parked
            parts.append(part)
        return parts[0], parts[1]

    def rows_of(self, place: int) -> frozenset[int] | None:
        """Return which rows (`Change.index`) it has of the record at `place`; None: all."""
        return None

    def head(self, records: int, size: int) -> int:
        """Return how many of its first records fit into `records` and `size` bytes."""
        count = 0
        for length in lengths(self.messages):
            size -= length + RECORD_OVERHEAD
            if count >= records or size < 0:
                break
            count += 1
        return count


class DecodedChunk(Chunk):
    """Records whose changes are already decoded."""

    __slots__ = ()
    changes: Sequence[Change]

    def __init__(
        self,
        like: Chunk,
        messages: Sequence[Record],
        changes: Sequence[Change],
        ends: Sequence[int],
        *,
        table: Table | None,
    ) -> None:
        """`like`: the chunk whose records these are. `table`: the table whose rules decoded the changes."""
        super().__init__(like.assignment, like.run, messages)
        self.enqueued, self.fetched, self.parked = like.enqueued, like.fetched, like.parked
        self.changes, self.ends, self.table = changes, ends, table

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        return self.part(0, count), self.part(count, len(self.messages))

    def part(self, first: int, end: int) -> DecodedChunk:
        begin = self.ends[first - 1] if first else 0
        ends = [each - begin for each in self.ends[first:end]]
        changes = self.changes[begin : begin + ends[-1] if ends else begin]
        return DecodedChunk(self, self.messages[first:end], changes, ends, table=self.table)


class BarrierChunk(Chunk):
    """A barrier's place in the queue of a table where its statement does not run. It has no records."""

    __slots__ = ()

    def __init__(self, like: Chunk, barrier: Barrier[Any]) -> None:
        super().__init__(like.assignment, like.run, [], alone=True)
        self.barrier = barrier


@dataclass(eq=False)
class Barrier(Generic[_Member]):
    """A statement about several tables. Guarded by the lock of `Lanes` once it is queued."""

    home: _Member
    """The unit where the statement runs."""
    others: tuple[_Member, ...]
    over: bool = False
    """The statement is finished, or its partition was revoked."""
