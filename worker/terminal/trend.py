"""The last hour of a worker on one line: throughput, lag and delay, drawn with blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from rich.text import Text

from worker.observing.overview.figures import Rates, delay_of, lag_of
from worker.observing.overview.history import SECONDS, Point
from worker.observing.status import WorkerStatus
from worker.observing.visible_text import count, duration

_BLOCKS = "▁▂▃▄▅▆▇█"
_HOUR = 3600.0
_SHORTEST = 600.0
_LEAST = 6
"""The least columns of a drawing that is useful."""
_NARROW = 60
"""Below this width, only two drawings fit."""


class Trend:
    """The worker's stored points of the last hour, and points from later answers."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._points: deque[Point] = deque(points, maxlen=int(_HOUR / SECONDS) + 1)

    @property
    def known(self) -> bool:
        return bool(self._points)

    def see(self, status: WorkerStatus, rates: Rates, time: float) -> None:
        """Add a later answer. `time`: the worker's Unix time."""
        if self._points and time < self._points[-1].time + SECONDS:
            return
        self._points.append(Point(time, rates.total, lag_of(status), delay_of(status), 0, 0, 0))

    def values(self, field: str, parts: int) -> list[float | None]:
        """Split the known part of the last hour into equal parts. Return the average of each; None: not
        known."""
        if not self._points:
            return [None] * parts
        last = self._points[-1].time
        span = max(_SHORTEST, min(_HOUR, last - self._points[0].time))
        begin = last - span
        found: list[list[float]] = [[] for _ in range(parts)]
        for point in self._points:
            value = getattr(point, field)
            if value is not None and point.time >= begin:
                found[min(parts - 1, int((point.time - begin) / span * parts))].append(value)
        return [sum(part) / len(part) if part else None for part in found]


def blocks(values: Sequence[float | None]) -> str:
    """Draw a column for each value, scaled from 0 to the largest; a space for an unknown value.

    >>> blocks([0, 1, None, 7, 14])
    '▁▁ ▄█'
    """
    most = max((value for value in values if value is not None), default=0.0)
    step = most / (len(_BLOCKS) - 1) if most else 1.0
    return "".join(" " if value is None else _BLOCKS[int(value / step + 1e-9)] for value in values)


def trend_line(trend: Trend, status: WorkerStatus, rates: Rates, width: int) -> Text | None:
    """Return the line, `width` columns wide; None: it is too narrow, or nothing is known."""
    shown = [
        ("rate", "records/s ", f" {count(rates.total)}"),
        ("lag", "  lag ", f" {count(lag_of(status))}"),
        ("delay", "  delay ", f" {duration(delay_of(status))}"),
    ]
    if width < _NARROW:
        shown = shown[:2]
    room = (width - sum(len(title) + len(now) for _, title, now in shown)) // len(shown)
    if room < _LEAST or not trend.known:
        return None
    text = Text(no_wrap=True, overflow="ellipsis")
    for field, title, now in shown:
        text.append(title, "dim")
        text.append(blocks(trend.values(field, room)), "cyan")
        text.append(now)
    return text
