"""Records of one table from one poll, and the barrier of a statement about several tables."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from confluent_kafka import Message

from worker.units.parked import ParkedChanges, ParkedRecords

if TYPE_CHECKING:
    from handlers import Change
    from worker.formats.interface import Record
    from worker.units.assigned_partition import Assignment
    from worker.units.piece_order import AnyRun
    from worker.units.table import Table

RECORD_OVERHEAD = 256
"""Bytes counted for each record beside its value. These are confluent_kafka's Record object (136 B), the
headers of its value and key objects (33 B each), and list slots. Without them, small records would take twice
the memory that `max_bytes` allows."""

# Called through the class, which saves a look-up for each record.
_offset = cast("Callable[[Record], int]", Message.offset)
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
    except OSError:
        return None


def place_of(records: Sequence[Record], offset: int) -> int | None:
    """The place of the record with this offset, or None. Reads no file."""
    if isinstance(records, ParkedRecords):
        place = bisect_left(records.offsets, offset)
        return place if place < len(records) and records.offsets[place] == offset else None
    if not records or not _offset(records[0]) <= offset <= _offset(records[-1]):
        return None
    place = bisect_left(records, offset, key=_offset)
    return place if _offset(records[place]) == offset else None


class Chunk:
    """Records of one table from one poll of one partition, in offset order."""

    __slots__ = (
        "alone",
        "assignment",
        "barrier",
        "bytes",
        "enqueued",
        "fetched",
        "in_file",
        "messages",
        "parked",
        "run",
    )

    changes: Sequence[Change] | None = None
    """The changes of all its records, once they are decoded."""
    ends: Sequence[int] = ()
    """For each record, the number of `changes` up to its end."""
    table: Table | None = None
    """The table whose rules were used to decode them."""

    def __init__(
        self,
        assignment: Assignment,
        run: AnyRun,
        messages: Sequence[Record],
        alone: bool = False,
        fetched: float = 0.0,
    ) -> None:
        self.assignment = assignment
        self.run = run
        self.messages = messages
        self.bytes = sum(lengths(messages)) + RECORD_OVERHEAD * len(messages)
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

    def park(self, records: ParkedRecords, _changes: ParkedChanges | None) -> tuple[int, int]:
        """Keep these instead of what is in memory. Returns the (records, bytes) that it releases."""
        released = self.leave()
        self.messages = records
        self.parked = True
        return released

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

    __slots__ = ("changes", "ends", "table")

    def __init__(
        self,
        like: Chunk,
        messages: Sequence[Record],
        changes: Sequence[Change],
        ends: Sequence[int],
        *,
        table: Table | None,
    ) -> None:
        """`like`: a chunk of the same poll. `table`: the table whose rules decoded the changes."""
        super().__init__(like.assignment, like.run, messages)
        self.enqueued, self.fetched = like.enqueued, like.fetched
        self.changes: Sequence[Change] = changes
        self.ends = ends
        self.table = table

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        return self.part(0, count), self.part(count, len(self.messages))

    def part(self, first: int, end: int) -> DecodedChunk:
        begin = self.ends[first - 1] if first else 0
        ends = [each - begin for each in self.ends[first:end]]
        changes = self.changes[begin : begin + ends[-1] if ends else begin]
        part = DecodedChunk(self, self.messages[first:end], changes, ends, table=self.table)
        part.parked = self.parked
        return part

    def park(self, records: ParkedRecords, changes: ParkedChanges | None) -> tuple[int, int]:
        released = super().park(records, changes)
        if changes is not None:
            self.changes = changes
        return released

    def load(self) -> None:
        super().load()
        if isinstance(self.changes, ParkedChanges):
            self.changes = tuple(self.changes)


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
