"""Records of one table from one poll, and everything that one poll brought."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from confluent_kafka import Message

if TYPE_CHECKING:
    from handlers import Change
    from offsets.run import Run
    from worker.assignment import Assignment
    from worker.barrier import Barrier
    from worker.formats.interface import Record
    from worker.unit import Unit

__all__ = ["RECORD_OVERHEAD", "Chunk", "DecodedChunk", "Delivery"]

RECORD_OVERHEAD = 256
"""Bytes counted for each record beside its value: confluent_kafka's Record object (136 B), the headers of its
value and key objects (33 B each), list slots. Without it, `max_bytes` of small records would hold twice as
much."""


# Called through the class: no lookup for each record.
_offset = cast("Callable[[Record], int]", Message.offset)


class Chunk:
    """Records of one table from one poll of one partition, in offset order."""

    __slots__ = ("alone", "assignment", "barrier", "bytes", "enqueued", "messages", "run")

    changes: Sequence[Change] | None = None
    """Those of all its records, once they are decoded."""
    ends: Sequence[int] = ()
    """For each record, how many of `changes` come up to its end."""

    def __init__(self, assignment: Assignment, run: Run, messages: list[Record], alone: bool = False) -> None:
        self.assignment = assignment
        self.run = run
        self.messages = messages
        self.bytes = sum(map(len, messages)) + RECORD_OVERHEAD * len(messages)
        self.enqueued = 0.0
        self.alone = alone
        """DDL: one record that is a batch of its own. With order by row it is the table's barrier, too."""
        self.barrier: Barrier | None = None
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
            part.enqueued = self.enqueued
            part.barrier = self.barrier
            parts.append(part)
        return parts[0], parts[1]

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

    __slots__ = ("changes", "ends")

    def __init__(
        self, like: Chunk, messages: list[Record], changes: Sequence[Change], ends: Sequence[int]
    ) -> None:
        """`like`: a chunk of the same poll."""
        super().__init__(like.assignment, like.run, messages)
        self.enqueued = like.enqueued
        self.changes: Sequence[Change] = changes
        self.ends = ends

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        return self.part(0, count), self.part(count, len(self.messages))

    def part(self, first: int, end: int) -> DecodedChunk:
        """Its records from `first` up to `end`."""
        begin = self.ends[first - 1] if first else 0
        ends = [each - begin for each in self.ends[first:end]]
        changes = self.changes[begin : begin + ends[-1] if ends else begin]
        return DecodedChunk(self, self.messages[first:end], changes, ends)


@dataclass(slots=True)
class Delivery:
    """What a poll brought, ready to be queued: taken whole or held, never half."""

    parts: list[tuple[Unit, Chunk]] = field(default_factory=list)
    bytes: int = 0
    records: dict[int, int] = field(default_factory=dict)
    """Lane -> records."""

    def add(self, unit: Unit, chunk: Chunk) -> None:
        self.parts.append((unit, chunk))
        if not chunk.messages:  # a barrier's place in another table
            return
        self.bytes += chunk.bytes
        self.records[unit.lane] = self.records.get(unit.lane, 0) + len(chunk.messages)

    def recount(self) -> None:
        """Tables have other home lanes now."""
        records: dict[int, int] = {}
        for unit, chunk in self.parts:
            records[unit.lane] = records.get(unit.lane, 0) + len(chunk.messages)
        self.records = records  # at once: processors look whether it fits

    def pieces(self, max_records: int, max_bytes: int) -> list[Delivery]:
        """The same in as few deliveries as stay within the bounds of each lane and of the worker, in order.

        Only one record that is larger than the bound by itself makes a piece beyond it."""
        if self.bytes <= max_bytes and all(records <= max_records for records in self.records.values()):
            return [self]
        pieces = [Delivery()]
        for unit, whole in self.parts:
            if not whole.messages:  # with what it belongs to, which came just before
                pieces[-1].add(unit, whole)
                continue
            chunk: Chunk | None = whole
            while chunk is not None:
                piece = pieces[-1]
                room = max_records - piece.records.get(unit.lane, 0)
                count = len(chunk.messages)
                if count > room or piece.bytes + chunk.bytes > max_bytes:
                    count = chunk.head(room, max_bytes - piece.bytes)
                    if count == 0 and piece.parts:
                        pieces.append(Delivery())
                        continue
                    count = max(1, count)  # alone, beyond the bound
                head, chunk = chunk.split(count) if count < len(chunk.messages) else (chunk, None)
                piece.add(unit, head)
        return pieces

    def without(self, gone: set[Assignment]) -> Delivery:
        """The same without what belongs to partitions that left."""
        left = Delivery()
        for unit, chunk in self.parts:
            if chunk.assignment not in gone:
                left.add(unit, chunk)
        return left
