"""The message for open status pages. Its size is bounded for any number of tables, lanes and partitions."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from worker.observing.overview import figures
from worker.observing.overview.figures import drain_seconds, outlook, repeated_records
from worker.observing.overview.timeline import Entry, Point
from worker.observing.overview.trouble import Trouble
from worker.observing.overview.troubles import headline, troubles
from worker.observing.status import LaneStatus, PartitionStatus, WorkerStatus

_MOST_PARTS = 100
"""The most lanes, partitions and Spark tables in one message. Those with problems come first."""
_MOST_TROUBLES = 50

_ALONE = (
    "name",
    "state",
    "version",
    "uptime_seconds",
    "checkpoint",
    "kafka",
    "targets",
    "error",
    "finished_records",
    "unmatched_records",
    "lane_max_records",
    "max_bytes",
    "pace",
)


class Live(msgspec.Struct, frozen=True):
    """A message for open status pages: all they show except tables, settings and the hour before."""

    time: float
    headline: str
    level: str
    troubles: list[Trouble]
    troubles_omitted: int
    status: dict[str, Any]
    """As in `/api/status`, without its lists."""
    states: dict[str, int]
    """Number of tables in each state, and `late`."""
    tables: int
    rate: float | None
    lag: int | None
    delay: float | None
    """Seconds since the oldest unfinished change happened; None if there is no partition."""
    outlook: str
    """When the lag will be gone; empty: it is normal, or not known."""
    drain_seconds: float
    """How long a drain would take now."""
    repeated: int
    """Finished records that a worker with an empty checkpoint folder would then repeat."""
    queued_records: int
    queued_bytes: int
    paused: int
    lanes: list[LaneStatus]
    lanes_in_all: int
    lanes_busy: int
    partitions: list[PartitionStatus]
    partitions_in_all: int
    waiting: list[dict[str, Any]]
    waiting_in_all: int
    handlers: list[dict[str, Any]]
    points: list[Point]
    entries: list[Entry]
    every: float
    """Seconds until the next message."""

    @classmethod
    def of(
        cls,
        status: WorkerStatus,
        *,
        config: str,
        rate: float | None,
        points: list[Point],
        entries: list[Entry],
        time: float,
        every: float,
    ) -> Self:
        """Build a message. `status` contains all tables; `config`: the configuration file; `rate`: records
        finished per second; `points`, `entries`: the latest ones; `time`: Unix time of the worker."""
        found = troubles(status, config)
        level, line = headline(status, found)
        states: dict[str, int] = {}
        late = 0
        for table in status.tables:
            states[table.state] = states.get(table.state, 0) + 1
            late += figures.is_late(table)
        waiting = figures.still_waiting(status)
        return cls(
            time=time,
            headline=line,
            level=level,
            troubles=found[:_MOST_TROUBLES],
            troubles_omitted=max(0, len(found) - _MOST_TROUBLES),
            status={key: getattr(status, key) for key in _ALONE},
            states={**states, "late": late},
            tables=len(status.tables) + status.tables_omitted,
            rate=rate,
            lag=figures.lag_of(status),
            delay=max((each.delay_seconds or 0.0 for each in status.partitions), default=None),
            outlook=outlook(status),
            drain_seconds=drain_seconds(status),
            repeated=repeated_records(status),
            queued_records=sum(lane.queued_records for lane in status.lanes),
            queued_bytes=sum(lane.queued_bytes for lane in status.lanes),
            paused=sum(each.paused for each in status.partitions),
            lanes=figures.lanes_by_trouble(status)[:_MOST_PARTS],
            lanes_in_all=len(status.lanes),
            lanes_busy=sum(lane.running_table is not None for lane in status.lanes),
            partitions=figures.partitions_by_trouble(status)[:_MOST_PARTS],
            partitions_in_all=len(status.partitions),
            waiting=waiting[:_MOST_PARTS],
            waiting_in_all=len(waiting),
            handlers=[{k: v for k, v in each.items() if k != "tables"} for each in status.handlers][
                :_MOST_PARTS
            ],
            points=points,
            entries=entries,
            every=every,
        )
