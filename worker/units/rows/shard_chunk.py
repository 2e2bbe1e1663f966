"""A shard's part of the records of a table in row order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from worker.units.chunk import RECORD_OVERHEAD, Chunk, DecodedChunk
from worker.units.finish_order import FinishOrder, SharedRecord

if TYPE_CHECKING:
    from handlers import Change
    from worker.formats.interface import Record
    from worker.units.table import Table


class ShardChunk(DecodedChunk):
    """A shard's part of the records of a chunk: of each record, the changes that belong to this shard."""

    __slots__ = ("order", "shard", "shared")

    def __init__(
        self,
        like: Chunk,
        messages: list[Record],
        changes: Sequence[Change],
        ends: Sequence[int],
        *,
        table: Table | None,
        shard: int,
        shared: Mapping[int, SharedRecord],
        order: FinishOrder,
    ) -> None:
        """`shared`: offset -> record, for records with parts in other shards."""
        super().__init__(like, messages, changes, ends, table=table)
        self.shard = shard
        self.shared = shared
        self.order = order
        if shared:
            self.bytes = sum(map(self._size, range(len(messages))))

    def _size(self, place: int) -> int:
        """Return the bytes of one part: its share of the record, and the overhead of a record."""
        message = self.messages[place]
        shared = self.shared.get(message.offset())
        if shared is None:
            return len(message) + RECORD_OVERHEAD
        own = self.ends[place] - (self.ends[place - 1] if place else 0)
        return len(message) * own // shared.changes + RECORD_OVERHEAD

    def part(self, first: int, end: int) -> ShardChunk:
        plain = super().part(first, end)
        return ShardChunk(
            self,
            plain.messages,
            plain.changes,
            plain.ends,
            table=self.table,
            shard=self.shard,
            shared=self.shared,
            order=self.order,
        )

    def rows_of(self, place: int) -> frozenset[int] | None:
        begin = self.ends[place - 1] if place else 0
        return frozenset(change.index for change in self.changes[begin : self.ends[place]])

    def head(self, records: int, size: int) -> int:
        if not self.shared:
            return super().head(records, size)
        for place in range(min(records, len(self.messages))):
            size -= self._size(place)
            if size < 0:
                return place
        return max(0, min(records, len(self.messages)))

    def finish(self, messages: Sequence[Record]) -> int:
        if self.shared or self.order.holds(self.shard):
            return self.order.done(self.shard, self, messages, self.shared)
        # In this order: after `forget`, what held it back is gone and was never finished.
        if self.assignment.forgotten:
            return 0
        return super().finish(messages)

    def leave(self) -> tuple[int, int]:
        if not self.shared:
            return super().leave()
        records = size = 0
        for message in self.messages:
            shared = self.shared.get(message.offset())
            if shared is not None:
                shared.left -= 1
                if shared.left:
                    continue
            records += 1
            size += len(message) + RECORD_OVERHEAD
        return records, size
