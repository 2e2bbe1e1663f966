"""A stage whose worker can be told to set a record aside."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from processing import Stage

from worker.formats.interface import Record
from worker.observing.unblock_messages import UnblockAnswer, UnblockRequest
from worker.stuck.stuck_heads import UnfinishedRecords
from worker.stuck.unblocking import Unblocking
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.chunk import Chunk
from worker.units.unit import Unit

__all__ = ["Hasty", "Letters", "Unblocked"]


@dataclass
class Letters:
    """In place of the topic."""

    refuse: list[BaseException] = field(default_factory=list)
    """Raised one after the other, then no more."""
    sent: list[tuple[int, int | None]] = field(default_factory=list)
    """(offset, index)"""
    ordered_by: list[str | None] = field(default_factory=list)

    def send(self, message: Record, **fields: Any) -> str:
        if self.refuse:
            raise self.refuse.pop(0)
        self.sent.append((message.offset(), fields["index"]))
        self.ordered_by.append(fields["ordered_by"])
        return f"dead[0] offset {len(self.sent) - 1}"


class Hasty:
    """A clock whose seconds are short, so that nothing is waited for that cannot come."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def __call__(self) -> float:
        return (time.monotonic() - self._begin) * 20


class Unblocked:
    """`ask` as the command does."""

    def __init__(
        self,
        stage: Stage,
        *units: Unit,
        letters: bool = True,
        partitions: tuple[Assignment, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.units = units
        self.held: list[tuple[Unit, Chunk]] = []
        self.commits = 0
        assignments = Assignments()
        assignments.add(partitions or (stage.partition,))
        records = UnfinishedRecords(
            assignments,
            stage.lanes,
            stage.calls,
            units=lambda: self.units,
            held=lambda: self.held,
            clock=clock,
        )
        self._unblocking = Unblocking(records, commit=self._commit, letters=letters, stopped=lambda: False)

    def ask(
        self,
        offset: int,
        action: Literal["skip", "dead_letter"] = "skip",
        *,
        table: str = "shop.orders",
        partition: int | None = None,
    ) -> UnblockAnswer:
        asked = UnblockRequest(
            table=table, offset=offset, action=action, by="ann@laptop", partition=partition
        )
        return self._unblocking(asked, "127.0.0.1")

    def _commit(self) -> bool:
        self.commits += 1
        return True
