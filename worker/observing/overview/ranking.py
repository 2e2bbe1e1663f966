"""Sort the parts of a worker by urgency, and compute its lag and delay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from worker.observing.status import LaneStatus, PartitionStatus, TableStatus, WorkerStatus

LATE_SECONDS = 60.0
"""A table whose oldest unfinished change is older than this is reported as late."""


def lag_of(status: WorkerStatus) -> int | None:
    """Return the uncommitted records of all partitions; None if one is not known or there is no partition."""
    lags = [each.lag for each in status.partitions]
    return sum(lag or 0 for lag in lags) if lags and None not in lags else None


def delay_of(status: WorkerStatus) -> float | None:
    """Return seconds since the oldest unfinished change happened; None if there is no partition."""
    return max((each.delay_seconds or 0.0 for each in status.partitions), default=None)


def is_late(table: TableStatus) -> bool:
    return (table.delay_seconds or 0.0) >= LATE_SECONDS


def handled_tables(
    handlers: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield (status of a handler, status of one of its tables), for handlers that list their tables."""
    for handler in handlers:
        tables = handler.get("tables")
        for table in tables if isinstance(tables, list | tuple) else ():
            if isinstance(table, Mapping):
                yield handler, table


def ranked(tables: Iterable[TableStatus]) -> list[TableStatus]:
    """Sort blocked, retrying and late tables first; the others by records finished, a stable order."""

    def rank(table: TableStatus) -> tuple[int, float, int, str]:
        if table.state == "blocked":
            group = 0
        elif table.state == "retrying":
            group = 1
        else:
            group = 2 if is_late(table) else 3
        late = table.delay_seconds or 0.0
        return group, -late if group < 3 else 0.0, -table.finished_records, table.table

    return sorted(tables, key=rank)


def partitions_by_trouble(status: WorkerStatus) -> list[PartitionStatus]:
    """Sort stuck and stalled partitions first, then paused ones, then by lag."""

    def rank(each: PartitionStatus) -> tuple[bool, bool, int, str, int]:
        stands = each.stuck is not None or each.standstill_seconds > 0
        return not stands, not each.paused, -(each.lag or 0), each.topic, each.partition

    return sorted(status.partitions, key=rank)


def lanes_by_trouble(status: WorkerStatus) -> list[LaneStatus]:
    """Sort full lanes first, then by number."""
    full = status.lane_max_records
    return sorted(
        status.lanes, key=lambda lane: (full is None or lane.queued_records < 0.9 * full, lane.lane)
    )
