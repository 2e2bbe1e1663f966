"""Records of one table from one poll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import Message

if TYPE_CHECKING:
    from handlers import Change
    from worker.formats.interface import Record
    from worker.units.apart.piece_order import AnyRun
    from worker.units.assigned_partition import Assignment
    from worker.units.barrier import Barrier
    from worker.units.table import Table

RECORD_OVERHEAD = 256
"""Bytes counted for each record beside its value: confluent_kafka's Record object (136 B), the headers of its
value and key objects (33 B each), list slots. Without it, `max_bytes` of small records would hold twice as
much."""


# Called through the class: no lookup for each record.
_offset = cast("Callable[[Record], int]", Message.offset)


class Chunk:
    """Records of one table from one poll of one partition, in offset order."""

    __slots__ = ("alone", "assignment", "barrier", "bytes", "enqueued", "fetched", "messages", "run")

    changes: Sequence[Change] | None = None
    """Those of all its records, once they are decoded."""
    ends: Sequence[int] = ()
    """For each record, how many of `changes` come up to its end."""
    table: Table | None = None
    """By whose rules they were decoded."""

    def __init__(
        self,
        assignment: Assignment,
        run: AnyRun,
        messages: list[Record],
        alone: bool = False,
        fetched: float = 0.0,
    ) -> None:
        self.assignment = assignment
        self.run = run
        self.messages = messages
        self.bytes = sum(map(len, messages)) + RECORD_OVERHEAD * len(messages)
        self.enqueued = 0.0
        self.fetched = fetched
        """Seconds since 1970."""
        self.alone = alone
        """DDL: one record that is a batch of its own. With order by row it is the table's barrier, too."""
        self.barrier: Barrier[Any] | None = None
        """What it shares with other tables that its statement is about."""

    def finish(self, messages: Sequence[Record]) -> int:
        """Mark these of its records as finished, each of them once. Returns how many are finished by it."""
        self.run.finish_records(messages, _offset)
        return len(messages)

    def leave(self) -> tuple[int, int]:
        """The (records, bytes) that it no longer holds. Called once, when nothing more is done with it."""
        return len(self.messages), self.bytes

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        """The first `count` records, and the rest."""
        parts = []
        for messages in (self.messages[:count], self.messages[count:]):
            part = Chunk(self.assignment, self.run, messages, alone=self.alone)
            part.enqueued, part.fetched = self.enqueued, self.fetched
            part.barrier = self.barrier
            parts.append(part)
        return parts[0], parts[1]

    def rows_of(self, place: int) -> frozenset[int] | None:
        """Which rows (`Change.index`) it has of the record at `place`; None: all."""
        return None

    def head(self, records: int, size: int) -> int:
        """How many of its first records stay within so many records and bytes."""
        count = 0
        for message in self.messages:
            size -= len(message) + RECORD_OVERHEAD
            if count >= records or size < 0:
                break
            count += 1
        return count


class DecodedChunk(Chunk):
    """Records whose changes are known already."""

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
        """`like`: a chunk of the same poll. `table`: by whose rules the changes were decoded."""
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
    """A barrier's place in the queue of a table where its statement does not run. It holds no record."""

    __slots__ = ()

    def __init__(self, like: Chunk, barrier: Barrier[Any]) -> None:
        super().__init__(like.assignment, like.run, [], alone=True)
        self.barrier = barrier
