"""Records of one table from one poll, and everything that one poll brought."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offsets.tracker import Run
    from worker.assignment import Assignment
    from worker.formats.interface import Record
    from worker.unit import Unit

__all__ = ["RECORD_OVERHEAD", "Chunk", "Delivery"]

RECORD_OVERHEAD = 256
"""Bytes counted for each record beside its value: confluent_kafka's Record object (136 B), the headers of its
value and key objects (33 B each), list slots. Without it, `max_bytes` of small records would hold twice as
much."""


class Chunk:
    """Records of one table from one poll of one partition, in offset order."""

    __slots__ = ("alone", "assignment", "bytes", "enqueued", "messages", "run")

    def __init__(self, assignment: Assignment, run: Run, messages: list[Record], alone: bool = False) -> None:
        self.assignment = assignment
        self.run = run
        self.messages = messages
        self.bytes = sum(map(len, messages)) + RECORD_OVERHEAD * len(messages)
        self.enqueued = 0.0
        self.alone = alone
        """DDL: one record that is a batch of its own."""

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        """The first `count` records, and the rest."""
        parts = []
        for messages in (self.messages[:count], self.messages[count:]):
            part = Chunk(self.assignment, self.run, messages, alone=self.alone)
            part.enqueued = self.enqueued
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


@dataclass(slots=True)
class Delivery:
    """What a poll brought, ready to be queued: taken whole or held, never half."""

    parts: list[tuple[Unit, Chunk]] = field(default_factory=list)
    bytes: int = 0
    records: dict[int, int] = field(default_factory=dict)
    """Lane -> records."""

    def add(self, unit: Unit, chunk: Chunk) -> None:
        self.parts.append((unit, chunk))
        self.bytes += chunk.bytes
        self.records[unit.lane] = self.records.get(unit.lane, 0) + len(chunk.messages)

    def pieces(self, max_records: int, max_bytes: int) -> list[Delivery]:
        """The same in as few deliveries as stay within the bounds of each lane and of the worker, in order.

        Only one record that is larger than the bound by itself makes a piece beyond it."""
        if self.bytes <= max_bytes and all(records <= max_records for records in self.records.values()):
            return [self]
        pieces = [Delivery()]
        for unit, whole in self.parts:
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
                head, chunk = chunk.split(max(1, count)) if count < len(chunk.messages) else (chunk, None)
                piece.add(unit, head)
        return pieces

    def without(self, gone: set[Assignment]) -> Delivery:
        """The same without what belongs to partitions that left."""
        left = Delivery()
        for unit, chunk in self.parts:
            if chunk.assignment not in gone:
                left.add(unit, chunk)
        return left
