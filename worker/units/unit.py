"""A unit of order: the queue of one table (or of one shard of it), of which at most one batch runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

from worker.units.chunk import Chunk
from worker.units.finish_order import FinishOrder
from worker.units.turns import Turns

if TYPE_CHECKING:
    from worker.attempts.set_aside import SetAside
    from worker.configuration import TableRule
    from worker.formats.interface import Record
    from worker.units.assigned_partition import Assignment
    from worker.units.table import Table


class UnitState(Enum):
    IDLE = "idle"
    """Nothing queued."""
    GATHERING = "gathering"
    """Queued, gathering a fuller batch until `max_wait` is over."""
    WAITING_FOR_OTHERS = "waiting for others"
    """Queued, and others go first: before a barrier all shards of the table and the barrier's other tables;
    or its shards hold as many decoded rows as they may."""
    READY = "ready"
    RUNNING = "running"
    BACKOFF = "backoff"
    """A batch failed and waits to be tried again."""
    HALTED = "halted"
    """A change failed for good: nothing of this unit runs any more."""


class Account:
    """What a table, with its shards, holds of its home lane's bounds. Guarded by the lock of `Lanes`."""

    __slots__ = ("bytes", "lane", "records")

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.records = 0
        self.bytes = 0


class Unit:
    """An ordering unit (a table): its records queue here, and at most one batch of them runs.

    With order by row a table has units for its shards (see worker/units/rows/); its own unit's
    batches are then spread over them, and only DDL and its like run here."""

    __slots__ = (
        "account",
        "blocked",
        "bytes",
        "chunks",
        "due",
        "error",
        "failed_batches",
        "failing_since",
        "finished_records",
        "incoming",
        "lane",
        "orders",
        "records",
        "shard",
        "shards",
        "state",
        "table",
        "ticket",
        "turns",
        "used",
    )

    def __init__(self, table: Table, lane: int) -> None:
        self.table = table
        self.lane = lane
        """Where it queues when it is ready, whoever takes it."""
        self.account = Account(lane)
        """What its records count against, whoever works on them: the table's, for a shard, too."""
        self.shard: int | None = None
        """Its number, if it is a shard."""
        self.shards: Shards | None = None
        """Those of a table in row order."""
        self.chunks: deque[Chunk] = deque()
        self.records = 0
        """Queued, without the running or kept batch."""
        self.bytes = 0
        self.state = UnitState.IDLE
        self.due = 0.0
        """When GATHERING or BACKOFF ends."""
        self.incoming: list[Record] = []
        """The fetcher's own: records of the poll that is being routed."""
        self.orders: dict[tuple[Assignment, int], SetAside] = {}
        """Given about queued records (by their offsets) while a batch had them that is none any more."""
        self.ticket = 0
        """Its place among the units that became ready."""
        self.used = 0.0
        """When records were last queued here."""
        self.turns = Turns()
        self.finished_records = 0
        self.failed_batches = 0
        self.error: str | None = None
        self.failing_since = 0.0
        """Since when there has been an error."""
        self.blocked = False
        """While it tries again: nothing is wrong with its batch, but where it has to go is down."""

    def mended(self) -> None:
        """What went wrong is over."""
        self.error = None
        self.blocked = False

    def push(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.records += len(chunk.messages)
        self.bytes += chunk.bytes

    def push_back(self, chunks: Iterable[Chunk]) -> None:
        """Queue again, in front, what was cut before."""
        for chunk in reversed(list(chunks)):
            self.chunks.appendleft(chunk)
            self.records += len(chunk.messages)
            self.bytes += chunk.bytes

    def members(self) -> tuple[Unit, ...]:
        """The table's own unit and its shards that have something to do."""
        return (self,) if self.shards is None else (self, *self.shards.units.values())

    @property
    def at_rest(self) -> bool:
        """Whether neither it nor a shard of it holds, runs or waits for anything. Without the lock, too: it
        was so a moment ago."""
        shards = self.shards
        return (
            self.state is UnitState.IDLE
            and not self.chunks
            and (shards is None or (not shards.units and shards.through))
        )

    @property
    def finished_in_all(self) -> int:
        """Records finished by it and by all shards that it has or had. Any thread."""
        count, shards = self.finished_records, self.shards
        if shards is not None:
            count += shards.finished_records
            count += sum(shard.finished_records for shard in tuple(shards.units.values()))
        return count

    @property
    def halted(self) -> bool:
        """Whether it or a shard of it is. Any thread."""
        return any(unit.state is UnitState.HALTED for unit in self.members())

    def full(self, most_records: int, most_bytes: int) -> bool:
        """Whether waiting for more would not make a better batch. `most_records`, `most_bytes`: what its lane
        can hold."""
        table = self.table
        return (
            self.records >= min(table.max_records, most_records)
            or self.bytes >= min(table.max_bytes, most_bytes)
            or self.chunks[0].alone
            or self.chunks[-1].alone
        )

    def drop(self, gone: set[Assignment]) -> list[Chunk]:
        """Forget what is queued of these partitions, and return it."""
        # A barrier's place in another table stays until the barrier is over.
        dropped = [chunk for chunk in self.chunks if chunk.assignment in gone and chunk.messages]
        if dropped:
            self.chunks = deque(c for c in self.chunks if c.assignment not in gone or not c.messages)
            self.records -= sum(len(chunk.messages) for chunk in dropped)
            self.bytes -= sum(chunk.bytes for chunk in dropped)
        if self.orders:
            self.orders = {at: order for at, order in self.orders.items() if at[0] not in gone}
        return dropped


class Shard(Unit):
    """The rows of a table whose keys have one hash. There while it has something to do."""

    __slots__ = ("number", "whole")

    def __init__(self, whole: Unit, shards: Shards, number: int, lane: int) -> None:
        super().__init__(whole.table, lane)
        self.whole = whole
        self.account = whole.account
        self.number = self.shard = number
        self.turns = shards.turns

    def full(self, most_records: int, most_bytes: int) -> bool:
        # What the table has next waits until its shards are empty, or hold less.
        return self.whole.state is UnitState.WAITING_FOR_OTHERS or super().full(most_records, most_bytes)


class Shards:
    """The shards of one table. Guarded by the lock of `Lanes`, as units are."""

    def __init__(self) -> None:
        self.units: dict[int, Shard] = {}
        """Those that have something to do, by their number."""
        self.records = 0
        """Parts of records: queued, kept and running."""
        self.bytes = 0
        self.order = FinishOrder()
        self.turns = Turns()
        """Of all together: they have the same handlers."""
        self.key_columns: tuple[str, ...] | None = None
        """What the rows that were spread since the last barrier are told apart by; empty for a table without
        a key. None: nothing was spread since. The dispatcher's own while its batch is decoded."""
        self.rule: TableRule | None = None
        """By which they were decoded. The dispatcher's own, too."""
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
