"""Work of a running worker in a period, and its CPU."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.spark.sides import Side

__all__ = ["Moment", "Window", "look", "since"]


@dataclass(frozen=True)
class Window:
    """Work of a period."""

    seconds: float
    changes: int
    batches: int
    cpu: float
    """Seconds of the worker, without Java."""
    java: float
    """Seconds."""

    @property
    def rate(self) -> float:
        return self.changes / self.seconds

    @property
    def change_us(self) -> float:
        return 1e6 * self.cpu / max(self.changes, 1)

    @property
    def batch_ms(self) -> float:
        return 1e3 * self.cpu / max(self.batches, 1)


@dataclass(frozen=True)
class Moment:
    """Work until then."""

    time: float
    changes: int
    batches: int
    cpu: float
    all_cpu: float


def look(side: Side) -> Moment:
    """Read the counters of a worker with `http`."""
    status = side.status() or {}
    batches = sum(lane["batches"]["finished"] for lane in status["lanes"])
    cpu = side.own_cpu_seconds()
    return Moment(time.monotonic(), status["finished_records"], batches, cpu, side.cpu_seconds())


def since(side: Side, before: Moment) -> Window:
    """Return the work from an earlier look until now."""
    # CPU first, because the status of a worker with many tables takes some.
    now, cpu, all_cpu = time.monotonic(), side.own_cpu_seconds(), side.cpu_seconds()
    after = look(side)
    own = cpu - before.cpu
    return Window(
        now - before.time,
        after.changes - before.changes,
        after.batches - before.batches,
        own,
        max(0.0, all_cpu - before.all_cpu - own),
    )
