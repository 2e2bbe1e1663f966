"""A table in row order: its shards, each a unit of order of its own, and what they hold of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from worker.chunk import RECORD_OVERHEAD, Chunk, DecodedChunk
from worker.finish_order import FinishOrder, SharedRecord
from worker.pace import Pace
from worker.unit import Unit, UnitState

if TYPE_CHECKING:
    from handlers import Change
    from worker.formats.interface import Record

__all__ = ["Shard", "ShardChunk", "Shards"]


class ShardChunk(DecodedChunk):
    """What one shard gets of the records of a chunk: of each its part, the changes that are of this shard."""

    __slots__ = ("order", "shard", "shared")

    def __init__(
        self,
        like: Chunk,
        messages: list[Record],
        changes: Sequence[Change],
        ends: Sequence[int],
        *,
        shard: int,
        shared: Mapping[int, SharedRecord],
        order: FinishOrder,
    ) -> None:
        """`shared`: by offset, the records of which other shards have parts, too."""
        super().__init__(like, messages, changes, ends)
        self.shard = shard
        self.shared = shared
        self.order = order
        if shared:
            self.bytes = sum(map(self._size, range(len(messages))))

    def _size(self, place: int) -> int:
        """Bytes of one part: its share of the record, and the weight of a record."""
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
            shard=self.shard,
            shared=self.shared,
            order=self.order,
        )

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
        # In this order: when it is forgotten, what held it back is gone, and was never finished.
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


class Shard(Unit):
    """The rows of a table whose keys have one hash. There while it has something to do."""

    __slots__ = ("number", "whole")

    def __init__(self, whole: Unit, shards: Shards, number: int, lane: int) -> None:
        super().__init__(whole.table, lane)
        self.whole = whole
        self.account = whole.account
        self.number = self.shard = number
        self.pace = shards.pace

    def full(self, most_records: int) -> bool:
        # What the table has next waits until its shards are empty, or hold less.
        return self.whole.state is UnitState.BEHIND or super().full(most_records)


class Shards:
    """The shards of one table. Guarded by the lock of `Lanes`, as units are."""

    __slots__ = (
        "bytes",
        "failed_batches",
        "finished_records",
        "key_columns",
        "order",
        "pace",
        "records",
        "units",
    )

    def __init__(self) -> None:
        self.units: dict[int, Shard] = {}
        """Those that have something to do, by their number."""
        self.records = 0
        """Parts of records: queued, kept and running."""
        self.bytes = 0
        self.order = FinishOrder()
        self.pace = Pace()
        """Of all together: they have the same handlers."""
        self.key_columns: tuple[str, ...] | None = None
        """What the rows that were spread since the last barrier are told apart by; empty for a table without
        a key. None: nothing was spread since. The dispatcher's own while its batch is decoded."""
        self.finished_records = 0
        """By shards that are not there any more."""
        self.failed_batches = 0

    @property
    def through(self) -> bool:
        """Whether all that was spread is finished. What is held back may also wait until a partition that
        leaves is forgotten, when the shards are empty already."""
        return self.records == 0 and self.order.held_back == 0

    def get(self, whole: Unit, number: int, lanes: int) -> Shard:
        """The shard, made if it has nothing to do so far."""
        shard = self.units.get(number)
        if shard is None:
            # Next to each other, so that the shards of one table are evenly spread over the lanes.
            shard = self.units[number] = Shard(whole, self, number, (whole.lane + number) % lanes)
        return shard

    def rehome(self, lane: int, lanes: int) -> None:
        """Their table's home is another lane."""
        for shard in self.units.values():
            shard.lane = (lane + shard.number) % lanes

    def let_go(self, shard: Shard) -> None:
        """It has nothing to do any more."""
        self.finished_records += shard.finished_records
        self.failed_batches += shard.failed_batches
        del self.units[shard.number]  # last: who sees none, without the lock, sees what all have finished
