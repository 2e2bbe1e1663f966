"""The last hour of a worker: rebalances, failed commits, reloads, DDL, and problems with their ends.

One point every five seconds: throughput, lag, delay and commits. And of each table, one point a minute."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from worker.observing.status import TableStatus
from worker.observing.visible_text import visible

Kind = Literal["rebalance", "commit", "reload", "ddl", "trouble", "worker"]
Level = Literal["good", "info", "warn", "bad"]

ENTRIES = 400
_LONGEST = 300
"""The most characters of an entry's text. It takes at most twice as many bytes: 0.5 MB for 400 entries."""
_ONE_SECONDS = 10.0
_ONE_AMONG = 8
"""Events with the same name within ten seconds are one entry: for example, a hundred assigned partitions."""

_EVENTS: dict[str, tuple[Kind, Level]] = {
    "partition_assigned": ("rebalance", "info"),
    "partitions_revoked": ("rebalance", "info"),
    "partitions_lost": ("rebalance", "warn"),
    "revoke_timeout": ("rebalance", "warn"),
    "topics_shared": ("rebalance", "bad"),
    "topic_made_anew": ("rebalance", "warn"),
    "offset_out_of_range": ("rebalance", "warn"),
    "checkpoint_failed": ("commit", "bad"),
    "checkpoint_works_again": ("commit", "good"),
    "membership_unconfirmed": ("commit", "bad"),
    "first_commit_missing": ("commit", "bad"),
    "membership_confirmed_again": ("commit", "good"),
    "journal_failed": ("commit", "warn"),
    "journal_works_again": ("commit", "good"),
    "reloaded": ("reload", "good"),
    "reload_refused": ("reload", "bad"),
    "reload_given_up": ("reload", "warn"),
    "reload_needs_restart": ("reload", "warn"),
    "reload_found_no_changes": ("reload", "info"),
    "table_created": ("ddl", "info"),
    "column_added": ("ddl", "info"),
    "delta_columns_added": ("ddl", "info"),
    "delta_column_widened": ("ddl", "info"),
    "spark_ddl_waits": ("ddl", "info"),
    "truncate_ignored": ("ddl", "info"),
    "table_halted": ("trouble", "bad"),
    "table_waits": ("trouble", "warn"),
    "target_down": ("trouble", "bad"),
    "target_up": ("trouble", "good"),
    "head_stuck": ("trouble", "bad"),
    "head_moved": ("trouble", "good"),
    "standstill": ("trouble", "bad"),
    "standstill_not_mended": ("trouble", "bad"),
    "standstill_over": ("trouble", "good"),
    "max_ahead_reached": ("trouble", "warn"),
    "max_ahead_over": ("trouble", "good"),
    "parking_failed": ("trouble", "bad"),
    "parking_full": ("trouble", "bad"),
    "handler_slow": ("trouble", "warn"),
    "spark_merge_failed": ("trouble", "warn"),
    "change_skipped": ("trouble", "warn"),
    "record_skipped": ("trouble", "warn"),
    "dead_letter": ("trouble", "warn"),
    "dead_letters_impossible": ("trouble", "bad"),
    "dead_letters_possible_again": ("trouble", "good"),
    "unblock_ordered": ("trouble", "info"),
    "unblock_answered": ("trouble", "info"),
    "unblock_refused": ("trouble", "warn"),
    "table_paused": ("trouble", "info"),
    "table_resumed": ("trouble", "good"),
    "pause_refused": ("trouble", "warn"),
    "pauses_unreadable": ("trouble", "bad"),
    "worker_fault": ("trouble", "bad"),
    "worker_started": ("worker", "good"),
    "draining": ("worker", "info"),
}
_DDL = "ddl_"  # a statement that was applied or ignored
_LEFT_OUT = frozenset(("event", "exc_info", "hint", "logger", "level", "timestamp"))
_LEVELS: dict[str, Level] = {"debug": "info", "info": "info", "warning": "warn"}


class Entry(msgspec.Struct, frozen=True):
    """One event, or several with the same name within a short time."""

    id: int
    """Stays the same while events are added."""
    version: int
    """Rises with each event. A reader that has seen one version asks for higher ones."""
    time: float
    """Unix time of the latest event, in seconds."""
    kind: Kind
    level: Level
    event: str
    text: str
    """Text of the latest event, without secrets, at most 300 characters."""
    count: int = 1


class Timeline:
    """The latest 400 entries, at most 0.5 MB. Thread-safe."""

    def __init__(
        self, redact: Callable[[str], str], *, clock: Callable[[], float], entries: int = ENTRIES
    ) -> None:
        """`clock`: Unix time."""
        self._redact = redact
        self._clock = clock
        self._lock = threading.Lock()  # guards all fields below
        self._entries: deque[Entry] = deque(maxlen=entries)
        self._version = 0

    def note(self, method: str, event: Mapping[str, Any]) -> None:
        """Add a logged event if the timeline shows events of this name. `method`: the logger's method."""
        name = str(event.get("event"))
        if name in _EVENTS:
            kind, level = _EVENTS[name]
        elif name.startswith(_DDL):
            kind, level = "ddl", _LEVELS.get(method, "bad")
        else:
            return
        parts = [
            f"{key.replace('_', ' ')} {_told(value)}"
            for key, value in event.items()
            if value is not None and key not in _LEFT_OUT and not key.startswith("stack")
        ]
        self.add(kind, level, name.replace("_", " "), " · ".join(parts))

    def add(self, kind: Kind, level: Level, event: str, text: str) -> None:
        # Redact before cutting: a cut secret would not be recognized.
        text = visible(self._redact(text))
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST - 1]}…"
        now = self._clock()
        with self._lock:
            self._version += 1
            for back in range(1, min(_ONE_AMONG, len(self._entries)) + 1):
                known = self._entries[-back]
                if known.event == event and 0 <= now - known.time < _ONE_SECONDS:
                    self._entries[-back] = msgspec.structs.replace(
                        known, version=self._version, time=now, text=text, count=known.count + 1
                    )
                    return
            entry = Entry(self._version, self._version, now, kind, level, event, text)
            self._entries.append(entry)

    def entries(self, last: int | None = None) -> list[Entry]:
        """Return the `last` entries that were added or changed most recently, or all; oldest first."""
        with self._lock:
            found = list(self._entries)
        if last is None:
            return found
        return sorted(sorted(found, key=lambda each: -each.version)[:last], key=lambda each: each.id)


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value))
    return " ".join(str(value).split())


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
