"""Compute rates from two statuses of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from worker.observing.status import WorkerStatus

TableKey = tuple[str, int]
PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rates:
    """Growth between two statuses. Parts that only the later status contains are missing."""

    total: float | None = None
    """Records finished per second; None: no earlier status."""
    tables: Mapping[TableKey, float] = field(default_factory=dict)
    """(table, lane) -> records finished per second."""
    partitions: Mapping[PartitionKey, float] = field(default_factory=dict)
    """(topic, partition) -> records fetched per second."""

    @classmethod
    def between(cls, before: WorkerStatus | None, now: WorkerStatus) -> Rates:
        """Compute the rates by the worker's own clock. There are none across its restart."""
        elapsed = now.uptime_seconds - before.uptime_seconds if before is not None else 0.0
        if before is None or elapsed <= 0:
            return cls()
        finished = {(table.table, table.lane): table.finished_records for table in before.tables}
        fetched = {(each.topic, each.partition): each.position for each in before.partitions}
        tables = {
            key: max(0, table.finished_records - finished[key]) / elapsed
            for table in now.tables
            if (key := (table.table, table.lane)) in finished
        }
        partitions = {
            key: max(0, each.position - earlier) / elapsed
            for each in now.partitions
            if each.position is not None
            and (earlier := fetched.get(key := (each.topic, each.partition))) is not None
        }
        if now.finished_records is not None and before.finished_records is not None:
            grown = now.finished_records - before.finished_records
        else:  # a table that only this status contains finished all its records since the previous one
            grown = sum(table.finished_records for table in now.tables) - sum(finished.values())
        return cls(max(0, grown) / elapsed, tables, partitions)
