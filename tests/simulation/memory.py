"""What a killed worker has to remember by its map of finished offsets, and what journals have to hold."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from offsets.finished.segment import writer_text
from offsets.journal import Entry, Journal
from offsets.journal.files import SIZE, Unit, files_in, unpacked
from offsets.run import Run
from offsets.stores import file_format
from offsets.stores.kafka import committed_of
from offsets.tracker import OffsetTracker
from offsets.types import Mark
from worker.units.assigned_partition import Assignment

from .ledger import Ledger, Part
from .machine.disk_calls import DiskPath

if TYPE_CHECKING:
    from .world import Running, World

__all__ = ["Journals", "Memory"]


@dataclass(slots=True, eq=False)
class _Left:
    """What a worker that was killed leaves of one partition."""

    folder: str
    finished: set[int]
    marks: set[Mark]


class Memory:
    """Which offsets were finished in a process, by what its trackers were told, not what they wrote."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._of_run: dict[Run, set[int]] = {}
        self._of_tracker: dict[OffsetTracker, set[int]] = {}
        self._left: dict[Part, _Left] = {}
        self._known: dict[Assignment, set[int]] = {}
        self.used = 0
        """How often a partition was gone on with from what a killed worker had left."""

    def registered(self, tracker: OffsetTracker, run: Run) -> None:
        self._of_run[run] = self._of_tracker.setdefault(tracker, set())

    def finished(self, run: Run, offsets: list[int]) -> None:
        self._of_run[run].update(offsets)

    def killed(self, process: Running) -> None:
        """It is about to be."""
        if process.worker is None or process.lost_files:
            return
        components = process.worker.components
        data = self._world.disk.files.get(f"{process.folder}/checkpoint.json")
        if data is None:
            return
        try:
            entries = file_format.decode(bytes(data.data), process.configuration.kafka.group_id).entries
        except file_format.DamagedFile:
            return
        for assignment in list(components.assignments._by_partition.values()):
            entry, window = entries.get(assignment.partition), assignment.tracker._window
            part = self._ledger.parts.get((assignment.topic_id or "", assignment.partition.partition))
            if part is None or entry is None or entry.window is None or window is None or window.ended:
                continue
            if not entry.window.startswith(f"{writer_text(window._writer.id)}:{window._number}:"):
                continue
            if entry.topic_id != assignment.topic_id:
                continue
            finished = set(self._of_tracker.get(assignment.tracker, ()))
            for first, end in [(0, entry.offset), *entry.ahead]:
                finished.update(each.offset for each in part.between(first, end))
            marks = {*window.marks, *([] if entry.acknowledged is None else [entry.acknowledged])}
            self._left[part] = _Left(process.folder, finished, {each for each in marks if not each.is_bare})

    def assigned(self, process: Running, assignment: Assignment, part: Part, known: Any) -> None:
        """`known`: what Kafka holds of the partition, offset and metadata, or None."""
        left = self._left.pop(part, None)
        if left is None or left.folder != process.folder or assignment.before is not None:
            return
        place = assignment.partition
        if known is None or committed_of(TopicPartition(*place, *known)).mark in left.marks:
            self.used += 1
            self._known[assignment] = left.finished

    def knows(self, assignment: Assignment, offset: int) -> bool:
        """Whether it was finished by a worker whose flags are there."""
        return offset in self._known.get(assignment, ())

    def forget(self, folder: str | None = None) -> None:
        """Files of this folder, by default of all, are not what was written last."""
        self._left = {part: left for part, left in self._left.items() if folder not in (None, left.folder)}
        for process in self._world.processes:
            process.lost_files = process.lost_files or folder in (None, process.folder)


@dataclass(slots=True)
class _Journal:
    tried: set[tuple[int, int]] = field(default_factory=set)
    """(partition, offset)."""
    written: list[tuple[int, int]] = field(default_factory=list)


class Journals:
    """`journal`: what is in one was finished, and what was written is in it, in order."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._folders: dict[str, _Journal] = {}

    def watch(self, process: Running, journal: Journal) -> None:
        append = journal.append
        kept = self._folders.setdefault(process.folder, _Journal())

        def appended(entries: Any) -> None:
            entries = list(entries)
            for each in entries:
                self._finished(each)
            units = [(each.partition.partition, each.offset) for each in entries]
            kept.tried.update(units)
            append(entries)
            kept.written += units

        journal.append = appended  # type: ignore[method-assign]

    def forget(self, folder: str | None = None) -> None:
        """As for `Memory`: what was written before may be gone, or there again."""
        for each in self._folders.values() if folder is None else [self._folders.get(folder)]:
            if each is not None:
                each.written = []

    def finally_(self) -> None:
        """No worker lives any more."""
        for folder, kept in self._folders.items():
            path = DiskPath(self._world.disk, f"{folder}/journal")
            units = _units_in(path)
            found = [(each.partition, each.offset) for each in units]
            for each in found:
                if each not in kept.tried:
                    self._world.oracles.broken("journal", f"{path} has {each}, which nobody wrote")
            rest, begin = iter(found), 0
            if units and units[0].number:  # the oldest files were removed
                begin = max(0, len(kept.written) - len(found) // 2)
            lost = [each for each in kept.written[begin:] if each not in rest]
            if lost:
                self._world.oracles.broken("journal", f"{path} has not {lost[0]}, or not in its place")

    def _finished(self, entry: Entry) -> None:
        part = self._ledger.parts.get((entry.topic_id or "", entry.partition.partition))
        if part is None:
            return
        first = part.first_open()
        if first is not None and first.offset < entry.offset:
            self._world.oracles.broken("journal", f"it says {entry.offset} of {part}, past {first.offset}")
        before = bisect_left(part.records, entry.offset, key=lambda each: each.offset)
        if before and entry.source_ms is not None:
            newest = part.records[before - 1]
            if not newest.excused and newest.source_ms > entry.source_ms:
                self._world.oracles.broken(
                    "journal", f"{entry.offset} of {part} is at {entry.source_ms}, {newest.offset} is later"
                )


def _units_in(folder: DiskPath) -> list[Unit]:
    found = []
    for first, path in files_in(folder).items():  # type: ignore[arg-type]
        data = path.read_bytes()
        found += [unpacked(data[at : at + SIZE], first + at // SIZE) for at in range(0, len(data), SIZE)]
    return [unit for unit in found if unit is not None]
