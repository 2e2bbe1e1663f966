"""A unit of order: the queue of one table, of which at most one batch runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

from worker.chunk import Chunk
from worker.pace import Pace
from worker.work import Work

if TYPE_CHECKING:
    from worker.assignment import Assignment
    from worker.formats.interface import Record
    from worker.shards import Shards
    from worker.tables import Table

__all__ = ["Account", "Unit", "UnitState"]

_SPREAD_RECORDS, _SPREAD_BYTES = 1_000, 4 << 20
"""The most that is decoded at a time to be spread over a table's shards."""


_TopicIds = dict[str, str | None]
"""Topic -> Kafka's id of it, None where that is not known."""


class UnitState(Enum):
    IDLE = "idle"
    """Nothing queued."""
    WAITING = "waiting"
    """Queued, gathering a fuller batch until `max_wait` is over."""
    BEHIND = "behind"
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

    With order by row a table has units for its shards (see worker/shards.py); its own unit's batches are then
    spread over them, and only DDL and its like run here."""

    __slots__ = (
        "account",
        "blocked",
        "bytes",
        "chunks",
        "due",
        "error",
        "failed_batches",
        "finished_records",
        "held",
        "incoming",
        "lane",
        "pace",
        "records",
        "shard",
        "shards",
        "state",
        "table",
        "ticket",
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
        """Queued, without the running or held batch."""
        self.bytes = 0
        self.state = UnitState.IDLE
        self.due = 0.0
        """When WAITING or BACKOFF ends."""
        self.held: Work | None = None
        """The batch that failed and is kept to be tried again."""
        self.incoming: list[Record] = []
        """The fetcher's own: records of the poll that is being routed."""
        self.ticket = 0
        """Its place among the units that became ready."""
        self.used = 0.0
        """When records were last queued here."""
        self.pace = Pace()
        self.finished_records = 0
        self.failed_batches = 0
        self.error: str | None = None
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
    def still(self) -> bool:
        """Whether nothing of it or of its shards runs, or is to run by itself."""
        still = (UnitState.IDLE, UnitState.HALTED, UnitState.BEHIND)
        return all(unit.state in still for unit in self.members())

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

    def full(self, most_records: int) -> bool:
        """Whether waiting for more would not make a better batch."""
        table = self.table
        return (
            self.records >= min(table.max_records, most_records)
            or self.bytes >= table.max_bytes
            or self.chunks[0].alone
            or self.chunks[-1].alone
        )

    def cut(self, *, others_wait: bool = False) -> Work:
        """The next batch: the one kept from before, or the head of the queue within the table's batch bounds.

        DDL stands alone; one record larger than the bound passes alone. While `others_wait` for a lane, a
        table that may be cut short takes a turn only (see Pace)."""
        if self.held is not None:
            work, self.held = self.held, None
            if work.table is not self.table:
                work.rebind(self.table)
            return work
        table = self.table
        most, most_bytes = table.max_records, table.max_bytes
        shortened = False
        if self.shards is not None:
            most, most_bytes = _SPREAD_RECORDS, _SPREAD_BYTES
        elif others_wait and table.max_wait <= 0 and (turn := self.pace.turn(self.records)) is not None:
            most = min(most, turn)
            shortened = True
        if self.records <= most and self.bytes <= most_bytes and not self._divided():
            work = Work(self, list(self.chunks), self.records, self.bytes)
            self.chunks.clear()
            self.records = self.bytes = 0
        else:
            work = Work.of(self, self._head(most, most_bytes))
            self.records -= work.records
            self.bytes -= work.bytes
        work.shortened = shortened
        return work

    def _head(self, most: int, most_bytes: int) -> list[Chunk]:
        """Takes the queue's first records within these bounds, or the one that stands alone."""
        chunks: list[Chunk] = []
        records = size = 0
        ids: _TopicIds = {}
        while self.chunks:
            chunk = self.chunks[0]
            if chunks and (chunk.alone or _another_id(ids, chunks[0].assignment, chunk)):
                break
            if records + len(chunk.messages) > most or size + chunk.bytes > most_bytes:
                count = chunk.head(most - records, most_bytes - size)
                if count == 0 and not chunks:
                    count = 1
                if count == 0:
                    break
                if count < len(chunk.messages):
                    head, self.chunks[0] = chunk.split(count)
                    chunks.append(head)
                    break
            self.chunks.popleft()
            chunks.append(chunk)
            if chunk.alone:
                break
            records += len(chunk.messages)
            size += chunk.bytes
        return chunks

    def _divided(self) -> bool:
        """Whether what is queued must not be one batch."""
        first = self.chunks[0].assignment
        ids: _TopicIds = {}
        for chunk in self.chunks:
            if chunk.alone or (chunk.assignment is not first and _another_id(ids, first, chunk)):
                return True
        return False

    def unfold(self) -> list[Chunk]:
        """Queue the kept batch's unfinished records again, without those of closed partitions.

        Returns what is gone for good."""
        work, self.held = self.held, None
        if work is None:
            return []
        unfinished = work.unfinished_chunks()
        self.push_back(chunk for chunk in unfinished if not chunk.assignment.closed)
        return work.head(work.finished).chunks + [c for c in unfinished if c.assignment.closed]

    def drop(self, gone: set[Assignment]) -> list[Chunk]:
        """Forget what is queued of these partitions, and return it."""
        # A barrier's place in another table stays until the barrier is over.
        dropped = [chunk for chunk in self.chunks if chunk.assignment in gone and chunk.messages]
        if dropped:
            self.chunks = deque(c for c in self.chunks if c.assignment not in gone or not c.messages)
            self.records -= sum(len(chunk.messages) for chunk in dropped)
            self.bytes -= sum(chunk.bytes for chunk in dropped)
        return dropped


def _another_id(ids: _TopicIds, first: Assignment, chunk: Chunk) -> bool:
    """Whether the chunk is of a topic made anew since those before it: a batch tells one id of each topic.

    `ids`: those of the topics before it, to begin with none; `first`: the first chunk's assignment."""
    if not ids:
        ids[first.partition.topic] = first.topic_id
    topic_id = chunk.assignment.topic_id
    return ids.setdefault(chunk.assignment.partition.topic, topic_id) != topic_id
