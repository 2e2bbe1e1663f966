"""The last hour of a worker, one point every five seconds: throughput, lag, delay and commits; and of each
table, one point a minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import msgspec

from worker.observing.overview.timeline import Timeline
from worker.observing.status import TableStatus

SECONDS = 5.0
POINTS = 720
"""One hour of points."""

_NAMED = 5
"""The most tables that one timeline entry names."""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """The measurements at one moment, in JSON a list. None: not known."""

    time: float
    """Unix time in seconds."""
    rate: float | None
    """Records finished per second since the previous point."""
    lag: float | None
    """Records between the committed offsets and the ends of all partitions."""
    delay: float | None
    """Seconds since the oldest unfinished change happened in its source; 0: all are finished."""
    commits: float
    """Successful commits to Kafka since the previous point."""
    failed_commits: float
    """Failed commits to any store since the previous point."""
    blocked: float
    """Number of blocked tables."""


class Pulse(NamedTuple):
    """The state of a worker at one moment, from which each point is computed."""

    finished_records: int
    lag: int | None
    """The lag of all partitions; None: not known."""
    delay_seconds: float | None
    """Seconds since the oldest unfinished change happened in its source, 0 if all are finished; None: there
    is no partition."""
    blocked: frozenset[str]
    """The blocked tables."""


@dataclass(eq=False)
class History:
    """The latest points. Only one thread may call `look`; any thread the rest."""

    pulse: Callable[[], Pulse]
    commits: Callable[[], tuple[int, int]]
    """Returns the number of commits to Kafka so far, and of failed commits to any store."""
    timeline: Timeline
    """Receives an entry when blocked tables continue."""
    _: KW_ONLY
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    most: int = POINTS
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=self.most)
        self._due = self.clock()
        self._finished: tuple[float, int] | None = None
        self._commits_before = self.commits()
        self._blocked: frozenset[str] = frozenset()

    def look(self) -> None:
        """Add a point if one is due."""
        now = self.clock()
        if now < self._due:
            return
        self._due += self.seconds
        if self._due <= now:  # missed points are not made up for
            self._due = now + self.seconds
        pulse = self.pulse()
        finished = pulse.finished_records
        rate = None
        if self._finished is not None and now > self._finished[0]:
            rate = round(max(0, finished - self._finished[1]) / (now - self._finished[0]), 3)
        self._finished = (now, finished)
        lag = None if pulse.lag is None else float(pulse.lag)
        delay = None if pulse.delay_seconds is None else round(pulse.delay_seconds, 3)
        commits = self.commits()
        made, failed = (after - before for after, before in zip(commits, self._commits_before, strict=True))
        self._commits_before = commits
        self._tell_of(self._blocked - pulse.blocked)
        self._blocked = pulse.blocked
        self._points.append(Point(self.wall_clock(), rate, lag, delay, made, failed, len(pulse.blocked)))

    def points(self, last: int | None = None) -> list[Point]:
        """Return the latest `last` points, or all, oldest first."""
        found = list(self._points.copy())
        return found if last is None else found[-last:]

    def _tell_of(self, going_on: frozenset[str]) -> None:
        if not going_on:
            return
        names = ", ".join(sorted(going_on)[:_NAMED])
        more = f" and {len(going_on) - _NAMED} more" if len(going_on) > _NAMED else ""
        self.timeline.add("trouble", "good", "tables continue", f"{names}{more}")


FIELDS = ("time", "finished", "failed", "delay", "queued")
"""A point of a table: Unix time, records and failed batches so far, delay in seconds, queued records."""
_Figures = tuple[int, int, float, int]
_read = msgspec.msgpack.Decoder(dict[str, _Figures]).decode


@dataclass(eq=False)
class TableHours:
    """The points of a status's tables, packed: 3 MB for 1,000 tables. One thread adds, any thread reads."""

    clock: Callable[[], float]
    wall_clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._due = self.clock()
        self._points: deque[tuple[float, bytes]] = deque(maxlen=60)

    def look(self, tables: Callable[[], Iterable[TableStatus]]) -> None:
        """Add a point of each table if a minute is over."""
        if self.clock() >= self._due:
            self._due = self.clock() + 60.0
            found: dict[str, _Figures] = {
                each.table: (
                    each.finished_records,
                    each.failed_batches,
                    each.delay_seconds or 0.0,
                    each.queued_records,
                )
                for each in tables()
            }
            self._points.append((self.wall_clock(), msgspec.msgpack.encode(found)))

    def points(self, table: str) -> list[tuple[float, ...]]:
        """Return the table's points, oldest first."""
        kept = [(time, _read(packed).get(table)) for time, packed in self._points.copy()]
        return [(time, *found) for time, found in kept if found is not None]
