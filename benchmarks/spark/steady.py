"""A steady load, and the freshness of its changes on both sides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spark.feed import SteadyFeed
from benchmarks.spark.reader import Reader, is_there, summary
from benchmarks.spark.sides import Side
from benchmarks.spark.watch import Watch

__all__ = ["Observed", "Pace", "Queries", "observe"]


@dataclass(frozen=True)
class Pace:
    """Pace of a steady run."""

    rate: int
    """Changes a second."""
    warm: float
    """Seconds of warm-up, because both sides have just started."""
    seconds: float
    """Seconds of measurement."""
    tail: float
    """Seconds at most until all changes are merged."""


@dataclass(frozen=True)
class Observed:
    window: tuple[int, int]
    """The first measured change, and one beyond the last."""
    end_ms: int
    """Time of the last look."""
    cpu_seconds: float
    """CPU seconds of the side during the measurement."""
    rss_mib: float
    merged: bool
    """Everything was merged in time."""


def observe(side: Side, feed: SteadyFeed, watch: Watch, pace: Pace) -> Observed:
    """Start the feed, wait, stop it, and wait for the rest.

    Raises BenchmarkError if the side ends early.
    """
    feed.start()
    _sleep(side, feed, pace.warm)
    first, cpu = feed.load.made, side.cpu_seconds()
    _sleep(side, feed, pace.seconds)
    cpu, rss = side.cpu_seconds() - cpu, side.rss_mib()
    feed.stop()
    last = feed.load.last()
    deadline = time.monotonic() + pace.tail
    while watch.missing(last) and time.monotonic() < deadline:
        side.check()
        time.sleep(0.2)
    return Observed(
        (first, feed.load.made), time.time_ns() // 1_000_000, cpu, rss, merged=not watch.missing(last)
    )


def _sleep(side: Side, feed: SteadyFeed, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        side.check()
        feed.check()
        time.sleep(min(0.5, left))


@dataclass(frozen=True)
class _Sample:
    seconds: float
    """Seconds of the query."""
    behind: float
    """Age in seconds of the newest returned row when the query returned."""


class Queries:
    """A thread that queries one table after the other, every `every` seconds."""

    def __init__(
        self,
        asked: Reader,
        folders: Mapping[int, Path],
        source: Callable[[Path], str],
        feed: SteadyFeed,
        *,
        every: float,
    ) -> None:
        """`source` turns a table's folder into the source in a statement's FROM."""
        self.samples: list[_Sample] = []
        self._asked = asked
        self._folders = list(folders.values())
        self._source = source
        self._feed = feed
        self._every = every
        self._stopping = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="queries", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Raises the error that ended the thread."""
        self._stopping.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            turn = 0
            while not self._stopping.wait(self._every):
                folder = self._folders[turn % len(self._folders)]
                turn += 1
                if not is_there(folder):
                    continue
                answer = self._asked.ask(summary(self._source(folder)))
                newest = answer.row[2]
                if newest is not None:
                    behind = time.time() - self._feed.source_time(newest) / 1e3
                    self.samples.append(_Sample(answer.seconds, behind))
        except BaseException as fault:  # raised again by close
            self._fault = fault
