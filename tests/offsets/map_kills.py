"""Workers that are killed at any step of the code of the tracker and of the map, for tests."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, overload

import offsets
from offsets.finished import FinishedMap, covered, read
from offsets.run import Run
from offsets.stores.file import FileStore
from offsets.tracker import OffsetTracker, checkpoints
from offsets.types import OffsetRange, TopicPartition

__all__ = ["ROWS", "Interrupted", "Worker", "at_lines", "left_by"]

CODE = tuple(str(path) for path in Path(offsets.__path__[0]).rglob("*.py"))
ROWS = tuple(TopicPartition("rows", number) for number in range(2))
Finished = tuple[int, int]
"""(partition, offset)"""


class Worker:
    """Two partitions, their map and their file of checkpoints."""

    def __init__(self, folder: Path, segment_bytes: int = 4096, most_bytes: int = 1 << 20) -> None:
        self.folder = folder
        self.file = FileStore(folder, "replica")
        self.map = FinishedMap(folder, "replica", segment_bytes=segment_bytes, most_bytes=most_bytes)
        found = left_by(folder)
        self.trackers = [
            OffsetTracker(ranges[0].end, ranges[1:], self.map) for ranges in (found[each] for each in ROWS)
        ]
        self.runs: list[list[tuple[Run, list[int]]]] = [[] for _ in ROWS]
        self.checkpoint()

    def poll(self, partition: int, offsets: Sequence[int]) -> list[int]:
        """These come; what was finished before is passed over. Returns what is new."""
        tracker = self.trackers[partition]
        new = tracker.unknown(offsets)
        if new:
            self.runs[partition].append((tracker.register(new), new))
        return new

    def checkpoint(self, save: bool = True) -> None:
        """As the committer does it. `save`: the file can be written."""
        move = self.map.turn()
        taken = checkpoints(self.trackers, move=move)
        if move:
            self.map.moved()
        if save:
            found = {place: each for place, each in zip(ROWS, taken, strict=True) if each is not None}
            windows = {place: each.window for place, each in zip(ROWS, self.trackers, strict=True)}
            self.file.save(found, {}, {place: name for place, name in windows.items() if name is not None})
            self.map.saved()

    def close(self) -> None:
        for tracker in self.trackers:
            tracker.end()
        self.checkpoint()
        self.map.close(each.window for each in self.file.entries().values() if each.window)


def left_by(folder: Path) -> dict[TopicPartition, list[OffsetRange]]:
    """What is finished of each partition, by what a worker has in its folder."""
    entries = FileStore(folder, "replica").load_entries(ROWS)
    windows = read(folder, [each.window for each in entries.values() if each.window])
    found = {}
    for place in ROWS:
        entry = entries.get(place)
        if entry is None:
            found[place] = [OffsetRange(-1, 0)]
        else:
            window = windows.get(entry.window or "")
            found[place] = covered(entry.offset, entry.ahead, () if window is None else window.ranges)
    return found


def at_lines(folder: Path, copies: Path, lines: set[int], do: Callable[[], object]) -> list[Path]:
    """Do it; copies of the folder as a kill would leave it before these lines of the package's code, counted
    from the first that runs."""
    count = itertools.count()
    made: list[Path] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in CODE:
            return None
        if event == "line" and next(count) in lines:
            made.append(copies / str(len(made)))
            shutil.copytree(folder, made[-1])
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return made


class Interrupted(Sequence[int]):
    """Offsets; before that of this place something else happens."""

    def __init__(self, offsets: list[int], place: int, happens: Callable[[], object]) -> None:
        self.offsets = offsets
        self.place = place
        self.happens: Callable[[], object] | None = happens

    def __iter__(self) -> Iterator[int]:
        for place, offset in enumerate([*self.offsets, None]):
            if place == self.place and self.happens is not None:
                happens, self.happens = self.happens, None
                happens()
            if offset is not None:
                yield offset

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        return self.offsets[place]

    def __len__(self) -> int:
        return len(self.offsets)
