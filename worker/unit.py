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
    from worker.tables import Table

__all__ = ["Unit", "UnitState"]


class UnitState(Enum):
    IDLE = "idle"
    """Nothing queued."""
    WAITING = "waiting"
    """Queued, gathering a fuller batch until `max_wait` is over."""
    READY = "ready"
    RUNNING = "running"
    BACKOFF = "backoff"
    """A batch failed and waits to be tried again."""
    HALTED = "halted"
    """A change failed for good: nothing of this unit runs any more."""


class Unit:
    """An ordering unit (a table): its records queue here, and at most one batch of them runs."""

    __slots__ = (
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
        "state",
        "table",
        "ticket",
    )

    def __init__(self, table: Table, lane: int) -> None:
        self.table = table
        self.lane = lane
        """Its home lane, whose bounds its records count against, whoever works on them."""
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
        self.pace = Pace()
        self.finished_records = 0
        self.failed_batches = 0
        self.error: str | None = None
        self.blocked = False
        """While it tries again: nothing is wrong with its batch, but where it has to go is down."""

    def push(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.records += len(chunk.messages)
        self.bytes += chunk.bytes

    def push_back(self, chunks: Iterable[Chunk]) -> tuple[int, int]:
        """Queue again, in front, what was cut before. Returns its (records, bytes)."""
        records = size = 0
        for chunk in reversed(list(chunks)):
            self.chunks.appendleft(chunk)
            records += len(chunk.messages)
            size += chunk.bytes
        self.records += records
        self.bytes += size
        return records, size

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
            return work
        table = self.table
        most = table.max_records
        if others_wait and table.max_wait <= 0 and (turn := self.pace.turn(self.records)) is not None:
            most = min(most, turn)
        if self.records <= most and self.bytes <= table.max_bytes and not self._holds_alone():
            work = Work(self, list(self.chunks), self.records, self.bytes)
            self.chunks.clear()
            self.records = self.bytes = 0
            return work
        chunks: list[Chunk] = []
        records = size = 0
        while self.chunks:
            chunk = self.chunks[0]
            if chunk.alone and chunks:
                break
            if records + len(chunk.messages) > most or size + chunk.bytes > table.max_bytes:
                count = chunk.head(most - records, table.max_bytes - size)
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
        work = Work.of(self, chunks)
        self.records -= work.records
        self.bytes -= work.bytes
        return work

    def _holds_alone(self) -> bool:
        for chunk in self.chunks:  # noqa: SIM110 - a generator costs more than the loop, for every batch
            if chunk.alone:
                return True
        return False

    def unfold(self) -> tuple[int, int]:
        """Queue the kept batch's unfinished records again, without those of closed partitions.

        Returns the (records, bytes) that are gone for good."""
        work, self.held = self.held, None
        if work is None:
            return 0, 0
        left = [chunk for chunk in work.unfinished_chunks() if not chunk.assignment.closed]
        records, size = self.push_back(left)
        return work.records - records, work.bytes - size

    def drop(self, gone: set[Assignment]) -> tuple[int, int]:
        """Forget what is queued of these partitions. Returns the (records, bytes) that are gone."""
        records = size = 0
        if not any(chunk.assignment in gone for chunk in self.chunks):
            return 0, 0
        left: deque[Chunk] = deque()
        for chunk in self.chunks:
            if chunk.assignment in gone:
                records += len(chunk.messages)
                size += chunk.bytes
            else:
                left.append(chunk)
        self.chunks = left
        self.records -= records
        self.bytes -= size
        return records, size
