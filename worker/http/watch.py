"""The data of the status page, computed once for all viewers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import msgspec

from worker.configuration.shown import Setting
from worker.observing.overview.figures import Rates, is_late, ranked
from worker.observing.overview.live import Live
from worker.observing.overview.of_reading import why
from worker.observing.overview.timeline import FIELDS, History, Point, Timeline
from worker.observing.status import TableStatus, WorkerStatus

MOST_ROWS = 200
"""The most tables in one response."""
_LATEST_POINTS = 3
_LATEST_ENTRIES = 20
_FRESH_SECONDS = 0.9
_SHARE = 0.05
"""The share of one processor that reading the worker's status may use while somebody watches."""
_FORGOTTEN_SECONDS = 30.0

_SORTS: dict[str, Callable[[TableStatus], Any]] = {
    "table": lambda table: table.table,
    "state": lambda table: table.state,
    "lane": lambda table: table.lane,
    "queued": lambda table: table.queued_records,
    "finished": lambda table: table.finished_records,
    "failures": lambda table: table.failed_batches,
    "delay": lambda table: -1.0 if table.delay_seconds is None else table.delay_seconds,
}


@dataclass(frozen=True)
class Sources:
    """The sources of the page's data."""

    status: Callable[[], WorkerStatus]
    """Returns the status with all tables."""
    history: History | None = None
    timeline: Timeline | None = None
    settings: Callable[[], Sequence[Setting]] = tuple
    config: Callable[[], str] = field(default=lambda: "CONFIG")
    """The configuration file."""
    table_points: Callable[[str], Sequence[Sequence[float]]] = field(default=lambda _: ())
    """Returns the last hour of a table."""


class TablesQuery(msgspec.Struct, frozen=True):
    """Which tables to list, and in which order."""

    filter: str = ""
    """Only names that contain this text, in any case."""
    state: str = ""
    """A state, or `trouble` (blocked, retrying or late); empty: all."""
    sort: str = "trouble"
    """Or rate, or a key of the table."""
    descending: bool = False
    offset: int = 0
    limit: int = 50


@dataclass(eq=False)
class Watch:
    """Reads the worker's status on request, at most every 0.9 s. Thread-safe; it may block."""

    sources: Sources
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        # Guards the fields below: one thread reads the status, the others wait for its result.
        self._lock = threading.Lock()
        self._seen: tuple[float, WorkerStatus] | None = None
        self._rates = Rates()
        self._cost = 0.0

    @property
    def every(self) -> float:
        """Seconds between two messages: more if reading takes long, as with many thousand tables."""
        return max(1.0, self._cost / _SHARE)

    def live(self) -> bytes:
        """Return the current message, in JSON."""
        status, _ = self._look()
        history, timeline = self.sources.history, self.sources.timeline
        return encoded(
            Live.of(
                status,
                config=self.sources.config(),
                rate=self._rates.total,
                points=history.points(_LATEST_POINTS) if history else [],
                entries=timeline.entries(_LATEST_ENTRIES) if timeline else [],
                time=self.wall_clock(),
                every=self.every,
            )
        )

    def tables(self, query: TablesQuery) -> bytes:
        """Return a page of tables, in JSON: `tables`, each with its `rate`; `found`: number of matches."""
        status, rates = self._look()
        wanted = query.filter.casefold()
        found = [table for table in status.tables if wanted in table.table.casefold()]
        if query.state == "trouble":
            found = [table for table in found if table.state in ("blocked", "retrying") or is_late(table)]
        elif query.state:
            found = [table for table in found if table.state == query.state]
        if query.sort == "rate":
            found.sort(key=lambda table: rates.get((table.table, table.lane), 0.0), reverse=query.descending)
        elif query.sort in _SORTS:
            found.sort(key=_SORTS[query.sort], reverse=query.descending)
        else:
            found = ranked(found)
        offset = max(0, query.offset)
        rows = found[offset : offset + max(1, min(query.limit, MOST_ROWS))]
        return encoded(
            {
                "found": len(found),
                "in_all": len(status.tables) + status.tables_omitted,
                "offset": offset,
                "tables": [
                    {**msgspec.structs.asdict(table), "rate": rates.get((table.table, table.lane))}
                    for table in rows
                ],
            }
        )

    def table(self, name: str) -> bytes:
        """Return one table, in JSON: what was `found`, or null; `why` it is late; its last hour."""
        status, _ = self._look()
        found = next((table for table in status.tables if table.table == name), None)
        return encoded(
            {
                "found": found,
                "why": [] if found is None else why(found, status),
                "fields": FIELDS,
                "points": self.sources.table_points(name),
            }
        )

    def history(self) -> bytes:
        """Return the last hour of points and events, in JSON."""
        history, timeline = self.sources.history, self.sources.timeline
        return encoded(
            {
                "seconds": None if history is None else history.seconds,
                "fields": Point.__struct_fields__,
                "points": [] if history is None else history.points(),
                "entries": [] if timeline is None else timeline.entries(),
            }
        )

    def settings(self) -> bytes:
        """Return the configuration, in JSON."""
        return encoded({"file": self.sources.config(), "settings": list(self.sources.settings())})

    def _look(self) -> tuple[WorkerStatus, Mapping[tuple[str, int], float]]:
        with self._lock:
            began = self.clock()
            if self._seen is not None and began < self._seen[0] + min(_FRESH_SECONDS, self.every):
                return self._seen[1], self._rates.tables
            status = self.sources.status()
            self._cost = max(self.clock() - began, self._cost * 0.8)
            before = self._seen
            if before is not None and began < before[0] + _FORGOTTEN_SECONDS:
                self._rates = Rates.between(before[1], status)
            else:
                self._rates = Rates()
            self._seen = (began, status)
            return status, self._rates.tables


def encoded(told: object) -> bytes:
    """Encode as JSON. Invalid Unicode becomes question marks."""
    try:
        return msgspec.json.encode(told)
    except UnicodeEncodeError:  # a handler's or an error's text with bytes that are not UTF-8
        return json.dumps(msgspec.to_builtins(told), ensure_ascii=False).encode("utf-8", "replace")
