"""A unit of order: the queue of one table (or of one shard), of which at most one batch runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
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
    """Queued. Gathers a fuller batch until `max_wait` is over."""
    WAITING_FOR_OTHERS = "waiting for others"
    """Queued behind others. Before a barrier, all shards of the table and the barrier's other tables go
    first. Or its shards have the most decoded rows that they may have."""
    READY = "ready"
    RUNNING = "running"
    BACKOFF = "backoff"
    """A batch failed and waits for its retry."""
    HALTED = "halted"
    """A change failed permanently: nothing of this unit runs any more."""


@dataclass(eq=False)
class Account:
    """What a table and its shards use of their home lane's bounds. Guarded by the lock of `Lanes`."""

    lane: int
    records: int = 0
    bytes: int = 0


class Unit:
    """An ordering unit (a table): its records queue here, and at most one batch of them runs.

    With order by row, a table also has units for its shards (see worker/units/rows/). Its own unit's batches
    are then distributed over the shards, and only DDL and other barriers run here."""

    def __init__(self, table: Table, lane: int) -> None:
        self.table = table
        self.lane = lane
        """The lane where it queues when it is ready, whichever processor takes it."""
        self.account = Account(lane)
        """The account that its records count against. A shard uses its table's account."""
        self.shard: int | None = None
        """Its number, if it is a shard."""
        self.shards: Shards | None = None
        """The shards of a table in row order."""
        self.chunks: deque[Chunk] = deque()
        self.records = 0
        """Queued records, without the running or kept batch."""
        self.bytes = 0
        self.state = UnitState.IDLE
        self.due = 0.0
        """When GATHERING or BACKOFF ends."""
        self.incoming: list[Record] = []
        """The fetcher's own: records of the poll that is being routed."""
        self.orders: dict[tuple[Assignment, int], SetAside] = {}
        """Orders about queued records (by offset), given to a batch that was put back since."""
        self.ticket = 0
        """Its place among the units that became ready."""
        self.used = 0.0
        """When records were last queued here."""
        self.turns = Turns()
        self.finished_records = 0
        self.failed_batches = 0
        self.error: str | None = None
        self.failing_since = 0.0
        """When the present error first occurred."""
        self.blocked = False
        """While it retries: its batch is valid, but its target is down."""

    def mended(self) -> None:
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
        """Return the table's own unit and its shards that have work."""
        return (self,) if self.shards is None else (self, *self.shards.units.values())

    @property
    def at_rest(self) -> bool:
        """Whether it and all its shards are idle: they have, run and wait for nothing. Without the lock: it
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
        """Whether it or one of its shards is halted. Any thread."""
        return any(unit.state is UnitState.HALTED for unit in self.members())

    def full(self, most_records: int, most_bytes: int) -> bool:
        """Whether waiting would not make a better batch. `most_records`, `most_bytes`: the bounds of its
        lane."""
        table = self.table
        return (
            self.records >= min(table.max_records, most_records)
            or self.bytes >= min(table.max_bytes, most_bytes)
            or self.chunks[0].alone
            or self.chunks[-1].alone
        )

    def drop(self, gone: set[Assignment]) -> list[Chunk]:
        """Remove and return the queued records of these partitions."""
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
    """The rows of a table whose keys have one hash. Exists while it has work."""

    def __init__(self, whole: Unit, shards: Shards, number: int, lane: int) -> None:
        super().__init__(whole.table, lane)
        self.whole = whole
        self.account = whole.account
        self.number = self.shard = number
        self.turns = shards.turns

    def full(self, most_records: int, most_bytes: int) -> bool:
        # The table's next records wait until its shards are empty, or have fewer rows.
        return self.whole.state is UnitState.WAITING_FOR_OTHERS or super().full(most_records, most_bytes)


class Shards:
    """The shards of one table. Guarded by the lock of `Lanes`, like units."""

    def __init__(self) -> None:
        self.units: dict[int, Shard] = {}
        """The shards that have work, by number."""
        self.records = 0
        """Parts of records: queued, kept and running."""
        self.bytes = 0
        self.order = FinishOrder()
        self.turns = Turns()
        """For all shards together, because they have the same handlers."""
        self.key_columns: tuple[str, ...] | None = None
        """The key columns of rows distributed since the last barrier. Empty: the table has no key. None:
        nothing was distributed since. The dispatcher's own while its batch is decoded."""
        self.rule: TableRule | None = None
        """The rule that decoded them. Also the dispatcher's own."""
        self.finished_records = 0
        """Records finished by shards that no longer exist."""
        self.failed_batches = 0

    @property
    def through(self) -> bool:
        """Whether everything that was distributed is finished. After the shards are empty, records may still
        be held back until a revoked partition is forgotten."""
        return self.records == 0 and self.order.held_back == 0

    def get(self, whole: Unit, number: int, lanes: int) -> Shard:
        """Return the shard. Makes it if it has had no work."""
        shard = self.units.get(number)
        if shard is None:
            # Consecutive lanes: the shards of one table are evenly distributed.
            shard = self.units[number] = Shard(whole, self, number, (whole.lane + number) % lanes)
        return shard

    def rehome(self, lane: int, lanes: int) -> None:
        """Their table has another home lane."""
        for shard in self.units.values():
            shard.lane = (lane + shard.number) % lanes

    def let_go(self, shard: Shard) -> None:
        self.finished_records += shard.finished_records
        self.failed_batches += shard.failed_batches
        del self.units[shard.number]  # last: readers without the lock then see all finished records
