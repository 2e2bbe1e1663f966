"""Figures of a backlog, for replicas and changelogs."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.results import Report
from benchmarks.spark.sides import Side
from benchmarks.spark.watch import Watch

__all__ = ["BACKLOG_COLUMNS", "Reached", "add_row", "reach"]

BACKLOG_COLUMNS = {
    "who": "Job",
    "state": "Until all are",
    "rate": "Changes/s",
    "rate_with_start": "with the start",
    "seconds": "s with the start",
    "cpu": "CPU s",
    "cpu_million": "CPU s per million",
    "commits": "Commits",
}

_LIMIT_SECONDS = 900


@dataclass(frozen=True)
class Reached:
    """Seconds since the process's start."""

    seconds: float
    reading: float
    """Start of reading: Spark was up."""
    cpu: float
    """CPU seconds of all processes, with the start."""

    def rate(self, changes: int) -> float:
        """Changes a second since reading started."""
        return changes / (self.seconds - self.reading)


def reach(side: Side, watch: Watch, last: list[int], reading: float, *, durable: bool = False) -> Reached:
    """Wait until the last change of every table is visible. Raises BenchmarkError if it does not appear."""
    side.wait(watch.showing(last, durable=durable), _LIMIT_SECONDS, "get through the backlog")
    cpu = side.cpu_seconds()
    return Reached(watch.complete_at(last, durable=durable) / 1e3 - side.started, reading, cpu)


def add_row(
    report: Report, who: str, state: str, reached: Reached, *, changes: int, commits: int | None = None
) -> None:
    report.row(
        who=who,
        state=state,
        rate=reached.rate(changes),
        rate_with_start=changes / reached.seconds,
        seconds=reached.seconds,
        reading=reached.reading,
        cpu=reached.cpu,
        cpu_million=reached.cpu / changes * 1e6,
        commits=commits,
    )
