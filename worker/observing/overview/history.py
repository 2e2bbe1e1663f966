"""The last hour of a worker, one point every five seconds: throughput, lag, delay and commits."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import msgspec

from worker.observing.overview.timeline import Timeline

SECONDS = 5.0
POINTS = 720
"""One hour of points."""

_FIELDS = 7
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
    lags: Sequence[int | None]
    """The lag of each partition; None: not known."""
    delay_seconds: float | None
    """Seconds since the oldest unfinished change happened in its source, 0 if all are finished; None: there
    is no partition."""
    blocked: frozenset[str]
    """The blocked tables."""


@dataclass(eq=False)
class History:
    """A ring of points with a fixed size of 40 KB. Only one thread may call `look`; any thread the rest."""

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
        self._ring = array("d", b"\0" * (8 * _FIELDS * self.most))
        self._lock = threading.Lock()  # guards _ring and _count
        self._count = 0
        self._due = self.clock()
        self._finished: tuple[float, int] | None = None
        self._commits_before = self.commits()
        self._blocked: frozenset[str] = frozenset()

    @property
    def bytes(self) -> int:
        """The memory size of the ring."""
        return len(self._ring) * self._ring.itemsize

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
        rate = math.nan
        if self._finished is not None and now > self._finished[0]:
            rate = max(0, finished - self._finished[1]) / (now - self._finished[0])
        self._finished = (now, finished)
        known = [lag for lag in pulse.lags if lag is not None]
        lag = float(sum(known)) if known and len(known) == len(pulse.lags) else math.nan
        delay = math.nan if pulse.delay_seconds is None else pulse.delay_seconds
        commits = self.commits()
        made, failed = (after - before for after, before in zip(commits, self._commits_before, strict=True))
        self._commits_before = commits
        self._tell_of(self._blocked - pulse.blocked)
        self._blocked = pulse.blocked
        with self._lock:
            begin = self._count % self.most * _FIELDS
            self._ring[begin : begin + _FIELDS] = array(
                "d", (self.wall_clock(), rate, lag, delay, made, failed, len(pulse.blocked))
            )
            self._count += 1

    def points(self, last: int | None = None) -> list[Point]:
        """Return the latest `last` points, or all, oldest first."""
        with self._lock:
            have = min(self._count, self.most)
            wanted = have if last is None else min(last, have)
            numbers = range(self._count - wanted, self._count)
            rows = [self._ring[n % self.most * _FIELDS :][:_FIELDS] for n in numbers]
        return [
            Point(time, _known(rate), _known(lag), _known(delay), made, failed, blocked)
            for time, rate, lag, delay, made, failed, blocked in rows
        ]

    def _tell_of(self, going_on: frozenset[str]) -> None:
        if not going_on:
            return
        names = ", ".join(sorted(going_on)[:_NAMED])
        more = f" and {len(going_on) - _NAMED} more" if len(going_on) > _NAMED else ""
        self.timeline.add("trouble", "good", "tables continue", f"{names}{more}")


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
