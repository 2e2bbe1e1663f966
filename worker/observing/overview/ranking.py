"""Which parts of a worker to look at first."""

from __future__ import annotations

from collections.abc import Iterable

from worker.observing.status import LaneStatus, PartitionStatus, TableStatus, WorkerStatus

__all__ = ["LATE_SECONDS", "lanes_by_trouble", "partitions_by_trouble", "ranked", "tables_by_trouble"]

LATE_SECONDS = 60.0
"""A table whose oldest unfinished change is older than this counts as trouble."""


def ranked(tables: Iterable[TableStatus]) -> list[TableStatus]:
    """Blocked, retrying and late tables first; the others busiest first, so that they keep their places."""

    def rank(table: TableStatus) -> tuple[int, float, int, str]:
        late = table.delay_seconds or 0.0
        if table.state == "blocked":
            group = 0
        elif table.state == "retrying":
            group = 1
        else:
            group = 2 if late >= LATE_SECONDS else 3
        return group, -late if group < 3 else 0.0, -table.finished_records, table.table

    return sorted(tables, key=rank)


def tables_by_trouble(status: WorkerStatus) -> list[TableStatus]:
    """Those that the status tells of."""
    return ranked(status.tables)


def partitions_by_trouble(status: WorkerStatus) -> list[PartitionStatus]:
    """Stuck ones and those that stand still, then paused ones, then by lag."""

    def rank(each: PartitionStatus) -> tuple[bool, bool, int, str, int]:
        stands = each.stuck is not None or each.standstill_seconds > 0
        return not stands, not each.paused, -(each.lag or 0), each.topic, each.partition

    return sorted(status.partitions, key=rank)


def lanes_by_trouble(status: WorkerStatus) -> list[LaneStatus]:
    """Lanes that are full first, then by number."""
    full = status.lane_max_records
    return sorted(
        status.lanes, key=lambda lane: (full is None or lane.queued_records < 0.9 * full, lane.lane)
    )
