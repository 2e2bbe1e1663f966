"""Figures from statuses of a worker (lag, delay, rates, forecasts), and its parts sorted by urgency."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from worker.observing.status import LaneStatus, Pace, PartitionStatus, TableStatus, WorkerStatus
from worker.observing.visible_text import count, duration

LATE_SECONDS = 60.0
"""A table whose oldest unfinished change is older than this is reported as late."""
_NUMBERS = ("waiting_rows", "waiting_bytes", "waiting_seconds", "merged_source_time_ms")
_TableKey = tuple[str, int]
_PartitionKey = tuple[str, int]


def total_lag(lags: Sequence[int | None]) -> int | None:
    """Return the uncommitted records of all partitions; None if one is not known or there is no partition."""
    return sum(lag or 0 for lag in lags) if lags and None not in lags else None


def lag_of(status: WorkerStatus) -> int | None:
    return total_lag([each.lag for each in status.partitions])


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


def waiting_tables(status: WorkerStatus) -> list[dict[str, Any]]:
    """List the tables that handlers merge after their batches: those with errors first, then the longest
    waits. What is no number is None."""
    found = [
        {
            **table,
            **{key: _number(table.get(key)) for key in _NUMBERS},
            "table": str(table.get("table", "")),
            "handler": str(handler.get("handler", "")),
            "error": str(table["error"]) if table.get("error") else None,
        }
        for handler, table in handled_tables(status.handlers)
    ]
    return sorted(found, key=lambda each: (not each["error"], -(each["waiting_seconds"] or 0), each["table"]))


def still_waiting(status: WorkerStatus) -> list[dict[str, Any]]:
    """Return the `waiting_tables` with waiting rows or an error."""
    return [table for table in waiting_tables(status) if table["waiting_rows"] or table["error"]]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def ranked(tables: Iterable[TableStatus]) -> list[TableStatus]:
    """Sort blocked, retrying and late tables first; the others by records finished, a stable order."""

    def rank(table: TableStatus) -> tuple[int, float, int, str]:
        if table.state == "blocked":
            group = 0
        elif table.state in ("retrying", "paused"):
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


@dataclass(frozen=True, slots=True)
class Rates:
    """Growth between two statuses. Parts that only the later status contains are missing."""

    total: float | None = None
    """Records finished per second; None: no earlier status."""
    tables: Mapping[_TableKey, float] = field(default_factory=dict)
    """(table, lane) -> records finished per second."""
    partitions: Mapping[_PartitionKey, float] = field(default_factory=dict)
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


# ---- when the lag will be gone, what a drain would cost

_LEAST_SECONDS = 10.0
_NORMAL_SECONDS = 10.0
"""A lag of so much work is normal: it also contains what is finished and not yet committed."""

_NOISE = 0.02
"""A lag that shrinks by less of the rate may as well grow: it is measured at two moments."""


class PaceMeter:
    """Measures over the last minute. One thread adds every five seconds, any thread reads."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int | None, float]] = deque(maxlen=13)
        self._partitions: object = ()

    def add(self, now: float, finished: int, lag: int | None, waited: float, partitions: object = ()) -> None:
        """`finished`: records so far; `lag`: of all partitions; `waited`: seconds so far for room. If the
        `partitions` are others than before, the measurement starts again."""
        if partitions != self._partitions:
            self._partitions = partitions
            self._seen.clear()
        self._seen.append((now, finished, lag, waited))

    def now(self) -> Pace | None:
        seen = self._seen.copy()
        seconds = seen[-1][0] - seen[0][0] if seen else 0.0
        if seconds < _LEAST_SECONDS:
            return None
        (_, finished, lag, waited), (_, finished_now, lag_now, waited_now) = seen[0], seen[-1]
        rate, growth = (finished_now - finished) / seconds, None
        lags = [each for _, _, each, _ in seen if each is not None]
        # If the lag was normal meanwhile, this one belongs to later records.
        if lag is not None and lag_now is not None and min(lags) > _NORMAL_SECONDS * rate:
            growth = round((lag_now - lag) / seconds, 3)
        return Pace(
            rate=round(rate, 3),
            lag_growth=growth,
            waiting=round((waited_now - waited) / seconds, 3),
        )


def caught_up_seconds(status: WorkerStatus) -> float | None:
    """Return in how many seconds the lag is gone at this rate; infinity: never. None: it is normal, or not
    known."""
    lag, pace = lag_of(status), status.pace
    if not lag or pace is None or pace.lag_growth is None or lag <= _NORMAL_SECONDS * pace.rate:
        return None
    shrinks = pace.lag_growth < -_NOISE * pace.rate
    return lag / -pace.lag_growth if shrinks else math.inf


def outlook(status: WorkerStatus) -> str:
    """Say when the lag will be gone. Empty: there is nothing to say."""
    seconds = caught_up_seconds(status)
    if seconds is None:
        return ""
    when = "never caught up" if seconds == math.inf else f"caught up in about {duration(seconds)}"
    return f"{when} at this rate"


def drain_seconds(status: WorkerStatus) -> float:
    """Return how long a stop would take now: until the longest running batch ends."""
    return max((lane.drain_seconds for lane in status.lanes), default=0.0)


def repeated_records(status: WorkerStatus) -> int:
    return sum(each.repeated for each in status.partitions)


def drain_cost(status: WorkerStatus) -> str:
    repeated = repeated_records(status)
    return f"drain {duration(drain_seconds(status))}" + (f", repeats {count(repeated)}" if repeated else "")
