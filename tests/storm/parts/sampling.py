"""What processes and records are like, every few seconds, for as long as a run lasts."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from storm.rig import Rig

__all__ = ["Sample", "Sampling", "growth", "read_samples"]


class Sample(NamedTuple):
    """Of one worker, at one time. Without a process all of its own is 0."""

    seconds: float
    """Since the first sample."""
    worker: str
    rss: int
    """Bytes."""
    threads: int
    handles: int
    """Open files and sockets."""
    folder: int
    """Bytes that its checkpoint folder takes on the disk."""
    p50: float
    """Seconds from a record's time to its end, in the batches of all workers since the sample before."""
    p99: float
    lag: int
    """Records that were sent and are not finished, of all tables."""


class Sampling:
    """Samples all workers of a rig into a CSV file, in a thread of its own, from `start` to `stop`."""

    def __init__(self, rig: Rig, every: float = 5.0) -> None:
        self._rig, self._every = rig, every
        self.file = rig.folder / "samples.csv"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_all, name="sampling", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _sample_all(self) -> None:
        begin = time.monotonic()
        with self.file.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(Sample._fields)
            while not self._stop.wait(self._every):
                delays = self._rig.judge.take_delays()
                p50, p99 = (median(delays), _p99(delays)) if delays else (0.0, 0.0)
                tables = list(self._rig.load.tables)
                lag = sum(max(0, table.sent - self._rig.judge.head(table.full_name)) for table in tables)
                for worker in self._rig.workers:
                    own = _process(worker.pid)
                    writer.writerow(
                        Sample(
                            round(time.monotonic() - begin, 1),
                            worker.name,
                            *own,
                            _bytes(worker.state),
                            round(p50, 3),
                            round(p99, 3),
                            lag,
                        )
                    )
                out.flush()


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[-1] if len(values) > 1 else values[0]


def _process(pid: int) -> tuple[int, int, int]:
    try:
        process = psutil.Process(pid)
        return process.memory_info().rss, process.num_threads(), process.num_fds()
    except psutil.Error:  # it has just ended
        return 0, 0, 0


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def read_samples(file: Path) -> list[Sample]:
    with file.open(newline="") as lines:
        return [
            Sample(
                float(row["seconds"]),
                row["worker"],
                *(int(row[name]) for name in ("rss", "threads", "handles", "folder")),
                float(row["p50"]),
                float(row["p99"]),
                int(row["lag"]),
            )
            for row in csv.DictReader(lines)
        ]


_BOUNDS = {"rss": (1.15, 16 << 20), "threads": (1.0, 4), "handles": (1.1, 16), "folder": (1.5, 4 << 20)}
"""Field -> how much the last quarter's median may exceed that of the second: by a factor, and beside."""


def growth(samples: list[Sample], worker: str) -> list[str]:
    """What has grown of a worker that ran all the time: its medians of the second and of the last quarter."""
    own = [each for each in samples if each.worker == worker and each.rss]
    end = max((each.seconds for each in own), default=0.0)
    found = []
    for name, (factor, more) in _BOUNDS.items():
        second, last = (
            [getattr(each, name) for each in own if begin <= each.seconds <= begin + end / 4]
            for begin in (end / 4, end * 3 / 4)
        )
        if not second or not last:
            found.append(f"{worker}: no samples of {name}")
        elif median(last) > median(second) * factor + more:
            found.append(f"{worker}: {name} has grown from {median(second):.0f} to {median(last):.0f}")
    return found
