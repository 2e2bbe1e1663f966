"""All routed records of one poll."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from worker.units.assigned_partition import Assignment, Transactions
from worker.units.chunk import Chunk
from worker.units.unit import Unit


@dataclass(slots=True)
class Delivery:
    """All routed records of a poll, ready to be queued: accepted as a whole or held."""

    parts: list[tuple[Unit, Chunk]] = field(default_factory=list)
    bytes: int = 0
    records: dict[int, int] = field(default_factory=dict)
    """Lane -> records."""
    queued: list[tuple[Transactions, int]] = field(default_factory=list)
    """What `Transactions.queued` is with the last of these records."""
    is_last: bool = True
    """Whether it has the poll's last records."""
    fetched: float = field(default_factory=time.time, compare=False)
    """Time of the fetch; seconds since 1970."""

    def add(self, unit: Unit, chunk: Chunk) -> None:
        self.parts.append((unit, chunk))
        if not chunk.messages:  # a barrier's place in another table
            return
        self.bytes += chunk.bytes
        self.records[unit.lane] = self.records.get(unit.lane, 0) + len(chunk.messages)

    def recount(self) -> None:
        """Tables have other home lanes now: count their records again."""
        records: dict[int, int] = {}
        for unit, chunk in self.parts:
            if chunk.messages:
                records[unit.lane] = records.get(unit.lane, 0) + len(chunk.messages)
        self.records = records  # assigned at once, because processors read it

    def pieces(self, max_records: int, max_bytes: int) -> list[Delivery]:
        """Split it, in order, into the fewest deliveries within the bounds of each lane and the worker.

        Only a single record that is larger than the bound makes a delivery beyond it."""
        if self.bytes <= max_bytes and all(records <= max_records for records in self.records.values()):
            return [self]
        pieces = [Delivery()]
        for unit, whole in self.parts:
            if not whole.messages:  # stays with the statement just before it
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
                        piece.is_last = False
                        pieces.append(Delivery())
                        continue
                    count = max(1, count)  # one record, beyond the bound
                head, chunk = chunk.split(count) if count < len(chunk.messages) else (chunk, None)
                piece.add(unit, head)
        pieces[-1].queued = self.queued
        pieces[-1].is_last = self.is_last
        return pieces

    def without(self, gone: set[Assignment]) -> Delivery:
        """Return the delivery without the records of revoked partitions."""
        left = Delivery(queued=self.queued, is_last=self.is_last)
        for unit, chunk in self.parts:
            if chunk.assignment not in gone:
                left.add(unit, chunk)
        return left
