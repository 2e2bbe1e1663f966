"""A unit of order: the queue of one table (or of one shard), of which at most one batch runs. How long its
batches take, and how many records make a fair turn."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from worker.attempts.steps import SetAside
from worker.configuration import TableRule
from worker.formats.interface import Record
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk, offset_at
from worker.units.finish_order import FinishOrder
from worker.units.table import Table

_TURN_SECONDS = 0.05
"""The length of a turn while others wait. Tables that share the lanes then end at about the same time,
however many they are."""
_DEARER = 1.5
_TOLD_BY_BATCHES, _TOLD_BY_RECORDS = 4, 100
"""After 4 shorter batches, or 100 records in them, the cost of a record in shorter batches is known. A single
batch of few records shows nothing."""
QUICK_SECONDS = 0.002
"""The duration of shorter batches depends more on the thread's own pauses than on the handler."""
_WEIGHED = 100
"""The records of a batch that fully determines the mean. A smaller batch counts for its share."""


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
    LIMITED = "limited"
    """A handler's limit allows no call now. Nothing has failed."""
    HALTED = "halted"
    """A change failed permanently: nothing of this unit runs any more."""


@dataclass(eq=False, slots=True)
class Account:
    """What a table and its shards use of their home lane's bounds. Guarded by the lock of `Lanes`."""

    lane: int
    records: int = 0
    bytes: int = 0


class Unit:
    """An ordering unit (a table): its records queue here, and at most one batch of them runs.

    With order by row, a table also has units for its shards (see worker/units/sharding.py). Its own unit's
    batches are then distributed over the shards, and only DDL and other barriers run here."""

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
        self.parked = 0
        """How many of the queued records are in files."""
        self.state = UnitState.IDLE
        self.due = 0.0
        """When GATHERING or BACKOFF ends."""
        self.gathers_since = 0.0
        self.incoming: list[Record] = []
        """The fetcher's own: records of the poll that is being routed."""
        self.incoming_bytes = 0
        """The bytes of their values. Also the fetcher's own."""
        self.orders: dict[tuple[Assignment, int], SetAside] = {}
        """Orders about queued records (by offset), given to a batch that was put back since."""
        self.tail: tuple[Assignment, int] | None = None
        """The last record of the last batch, if its batches hold whole transactions."""
        self.ticket = 0
        """Its place among the units that became ready."""
        self.used = 0.0
        """When records were last queued here."""
        self.turns = Turns()
        self.finished_records = 0
        self.failed_batches = 0
        self.error: str | None = None
        self.blocked = False
        """While it retries: its batch is valid, but its target is down, or it is paused."""
        self.paused = False
        """While it is blocked: only a person's pause blocks it."""
        self.stands_since = 0.0
        """When `error` began."""

    def mended(self) -> None:
        self.error = None
        self.blocked = self.paused = False

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
            self.parked += len(chunk.messages) if chunk.parked else 0

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

    @property
    def is_open(self) -> bool:
        """Whether more of its first transaction may come, and it must wait for that."""
        first, last = self.chunks[0], self.chunks[-1]
        if not self.table.whole or first.alone or last.alone:  # a statement ends it
            return False
        queued = offset_at(last.messages, -1) if last.assignment is first.assignment else -1
        return first.assignment.transactions.begin(queued=queued) <= offset_at(first.messages, 0)

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
            self.parked -= sum(len(chunk.messages) for chunk in dropped if chunk.parked)
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


class Turns:
    """Measured seconds per record. Guarded by the lock of `Lanes`.

    Shorter batches are only fair if they cost nothing. A handler whose calls cost the same whatever their
    size (a commit, a request) would just make more calls. So the first batches of half the records are
    compared with the longest one. If a record has become dearer, the table's batches are never shortened
    again."""

    __slots__ = ("_last", "_longest", "_mean", "_scales", "_shorter", "calls")

    def __init__(self) -> None:
        self._longest = (0, math.inf)  # about the longest uncut batch: its records, and seconds for each
        self._shorter = (0, 0, 0.0)  # batches of at most half of that, their records and their seconds
        self._last: float | None = None
        self._mean: float | None = None
        self._scales = True
        self.calls: dict[str, tuple[int, float, float]] = {}
        """Handler -> its calls, their seconds, and the longest. Without the lock: shards may lose some."""

    def most_records(self, queued: int) -> int | None:
        """Return the most records of the next batch while other tables wait; None: all that are queued."""
        seconds = self._last
        if seconds is None or not self._scales or queued * seconds <= _TURN_SECONDS:
            return None
        return max(1, int(_TURN_SECONDS / seconds))

    def called(self, handler: str, seconds: float) -> None:
        calls, total, longest = self.calls.get(handler, (0, 0.0, 0.0))
        self.calls[handler] = calls + 1, total + seconds, max(longest, seconds)

    def seconds(self, records: int) -> float:
        """Estimate the seconds for `records`. Infinity: unknown, or so quick that they may go first."""
        return math.inf if self._mean is None else records * self._mean

    def ran(self, records: int, seconds: float, *, shortened: bool) -> None:
        """Record a batch and its duration. `shortened`: it was cut to a turn."""
        if seconds < QUICK_SECONDS:
            self._last = self._mean = None
            return
        each = seconds / max(1, records)
        if not shortened:
            if records * 2 > self._longest[0]:
                self._longest = (records, each)
        elif records * 2 <= self._longest[0]:
            batches, count, spent = self._shorter
            self._shorter = batches, count, spent = batches + 1, count + records, spent + seconds
            told = batches >= _TOLD_BY_BATCHES or count >= _TOLD_BY_RECORDS
            if told and spent / count > _DEARER * self._longest[1]:
                self._scales = False
        self._last = each
        mean = self._mean
        self._mean = each if mean is None else mean + (each - mean) * min(1.0, records / _WEIGHED)
