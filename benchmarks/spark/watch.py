"""Times at which changes became visible in tables, seen from outside: by commits and by segments.

binlane's commits and segments contain the offset up to which their table is complete. The commits of the
Structured Streaming job contain the change. Those of AUTO CDC contain neither, so its checkpoints are
watched. Offsets equal the changes' numbers here. Files appear atomically under consecutive numbers, so it is
enough to look for the next number.
"""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from handlers.spark.log.marks import Marks

__all__ = ["CHECKPOINTS", "DELTA", "Commits", "History", "Watch", "pending"]

_LOOK_SECONDS = 0.2


@dataclass
class History:
    """The changes that one table showed, with times."""

    upto: list[int] = field(default_factory=list)
    """Numbers of changes, ascending."""
    times_ms: list[int] = field(default_factory=list)
    """Times since which all changes up to that one are visible, in milliseconds since 1970."""

    @property
    def last(self) -> int:
        """The greatest visible change; -1 for none."""
        return self.upto[-1] if self.upto else -1

    def visible_at(self, number: int) -> int | None:
        """Return the time at which change `number` became visible; None if it did not."""
        place = bisect_left(self.upto, number)
        return self.times_ms[place] if place < len(self.upto) else None

    def add(self, upto: int, time_ms: int) -> None:
        if upto > self.last:
            self.upto.append(upto)
            self.times_ms.append(time_ms)


def pending(folder: Path) -> Path:
    """Return the folder of the segments of a Delta table in the warehouse's `<database>/<table>`."""
    database, table = folder.parts[-2:]
    return folder.parents[1] / "_binlane" / database / table / "pending"


class _Files:
    """Files with consecutive numbers. Each is seen once."""

    def __init__(self, folder: Path, first: int, name: str) -> None:
        """`name` is a format of the number."""
        self._folder = folder
        self._next = first
        self._name = name

    def seen(self) -> list[tuple[Path, int]]:
        """Yield the new files, and when each appeared: its inode's last change, by its rename or link."""
        found = []
        while True:
            path = self._folder / self._name.format(self._next)
            try:
                found.append((path, path.stat().st_ctime_ns // 1_000_000))
            except FileNotFoundError:
                return found
            self._next += 1


@dataclass(frozen=True)
class Commits:
    """How a job's commits are found below a table's folder, and what they contain."""

    folder: str
    name: str
    """Format of a commit's number."""
    end: Callable[[Path], tuple[int, str] | None]
    """Commit -> the greatest change in it, and the engine that made it. None if it contains no change."""


class Watch:
    """A thread that looks at the tables in `folders` (table -> its Delta folder or checkpoint) until it is
    closed."""

    def __init__(self, folders: Mapping[int, Path], commits: Commits | None = None) -> None:
        """`commits`: by default those of Delta's log."""
        found = commits or DELTA
        self._end = found.end
        self.merged = {table: History() for table in folders}
        """Times by commits."""
        self.durable = {table: History() for table in folders}
        """Times by segments; empty for the peer."""
        self.engines: Counter[str] = Counter()
        """Number of commits that contain changes, by the engine that made them."""
        self._commits = {t: _Files(folder / found.folder, 0, found.name) for t, folder in folders.items()}
        self._segments = {t: _Files(pending(folder), 1, "{:020d}.parquet") for t, folder in folders.items()}
        self._stopping = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    @property
    def merges(self) -> int:
        """Number of commits that contain changes."""
        return self.engines.total()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def missing(self, last: list[int], *, durable: bool = False) -> int:
        """Return in how many tables the change `last[table]` is not visible yet.

        Raises the error that ended the thread.
        """
        if self._fault is not None:
            raise self._fault
        histories = self.durable if durable else self.merged
        return sum(history.last < last[table] for table, history in histories.items())

    def showing(self, last: list[int], *, durable: bool = False) -> Callable[[], bool]:
        """Return a function that says whether all tables show their change `last[table]`."""
        return lambda: self.missing(last, durable=durable) == 0

    def complete_at(self, last: list[int], *, durable: bool = False) -> int:
        """Return when all tables showed their change `last[table]`, in milliseconds since 1970."""
        histories = self.durable if durable else self.merged
        return max(history.visible_at(last[table]) or 0 for table, history in histories.items())

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_LOOK_SECONDS):
                self._look()
            self._look()
        except BaseException as fault:  # raised again in the thread that asks
            self._fault = fault

    def _look(self) -> None:
        for table, files in self._segments.items():
            for path, time_ms in files.seen():
                self.durable[table].add(_segment_end(path), time_ms)
        for table, files in self._commits.items():
            for path, time_ms in files.seen():
                found = self._end(path)
                if found is not None:
                    upto, engine = found
                    if upto > self.merged[table].last:
                        self.engines[engine] += 1
                    self.merged[table].add(upto, time_ms)


def _commit_end(path: Path) -> tuple[int, str] | None:
    for line in path.read_bytes().splitlines():
        if line.startswith(b'{"commitInfo"'):
            info = json.loads(line)["commitInfo"]
            note = info.get("userMetadata")
            if note is None:
                return None
            told = json.loads(note)
            upto = told if isinstance(told, int) else _greatest(told["binlane"]["marks"])
            return upto, _engine(info.get("engineInfo") or "unknown")
    return None


def _engine(info: str) -> str:
    """The engine's name: of `Apache-Spark/4.2.0 Delta-Lake/4.4.0` Spark, of `delta-rs:py-1.6.0` delta-rs."""
    return re.split("[/: ]", info.removeprefix("Apache-"), maxsplit=1)[0]


def _checkpoint_end(path: Path) -> tuple[int, str] | None:
    """A batch of files whose names are the numbers of their last changes. Ten batches share one log."""
    batch = int(path.name)
    log = path.parents[1] / "sources" / "0"
    found = next(name for name in (log / path.name, log / f"{batch}.compact") if name.exists())
    files = [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines() if line[0] == "{"]
    upto = max((int(Path(file["path"]).stem) for file in files if file["batchId"] == batch), default=None)
    return None if upto is None else (upto, "Spark")


def _segment_end(path: Path) -> int:
    footer = json.loads(pq.read_metadata(path).metadata[b"binlane"])
    marks = Marks.from_json(json.dumps(footer["marks"]))
    return max((offset for offset, _ in marks.highest().values()), default=-1)


def _greatest(marks: Mapping[str, Mapping[str, tuple[int, int]]]) -> int:
    """Of {topic: {partition: (offset, index)}}."""
    return max((place[0] for partitions in marks.values() for place in partitions.values()), default=-1)


DELTA = Commits("_delta_log", "{:020d}.json", _commit_end)
CHECKPOINTS = Commits("commits", "{}", _checkpoint_end)
"""The folders to watch are checkpoints of streams from files."""
