"""Records of one table from one poll, and the barrier of a statement about several tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from confluent_kafka import Message

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


class Chunk:
    """Records of one table from one poll of one partition, in offset order."""

    __slots__ = ("alone", "assignment", "barrier", "bytes", "enqueued", "fetched", "messages", "run")

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
        messages: list[Record],
        alone: bool = False,
        fetched: float = 0.0,
        *,
        size: int | None = None,
    ) -> None:
        """`size`: the bytes of the records' values, if they are already counted."""
        self.assignment = assignment
        self.run = run
        self.messages = messages
        size = sum(map(len, messages)) if size is None else size
        self.bytes = size + RECORD_OVERHEAD * len(messages)
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
        """Return the (records, bytes) that it releases. Called once, when nothing more happens to it."""
        return len(self.messages), self.bytes

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        """Return the first `count` records, and the rest."""
        parts = []
        for messages in (self.messages[:count], self.messages[count:]):
            part = Chunk(self.assignment, self.run, messages, alone=self.alone)
            part.enqueued, part.fetched = self.enqueued, self.fetched
            part.barrier = self.barrier
            parts.append(part)
        return parts[0], parts[1]

    def rows_of(self, place: int) -> frozenset[int] | None:
        """Return which rows (`Change.index`) it has of the record at `place`; None: all."""
        return None

    def head(self, records: int, size: int) -> int:
        """Return how many of its first records fit into `records` and `size` bytes."""
        count = 0
        for message in self.messages:
            size -= len(message) + RECORD_OVERHEAD
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
        messages: list[Record],
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
