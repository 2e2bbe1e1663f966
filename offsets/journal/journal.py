"""The journal of one folder: appended by all workers that use it, searched by time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from offsets.file_lock import LockHeld, locked
from offsets.journal.contents import Contents, State, carried, extended, walk
from offsets.journal.files import MOVED, Entry, Found, NewerUnit, Unit, key_of, topic_of
from offsets.stores.file import reason_of
from offsets.types import TopicPartition

UNITS_PER_FILE = 16_384
"""1 MiB. A start reads one file."""
_CLEAN_SECONDS = 60.0


class JournalError(Exception):
    """The journal cannot be read or written. The text says why, and what to do about it."""


@dataclass(eq=False)
class Journal:
    """The units of one group in `folder`, which groups and processes may share. Each append locks
    `journal.lock` and first reads what others have appended. Readers never wait.

    A new file starts with copies of each partition's last unit, so earlier files can be removed, and a start
    reads only the last file."""

    folder: Path
    group: str
    _: KW_ONLY
    flush: float | None = None
    """Seconds between flushes to the disk, 0 at each append; None: the system decides."""
    max_age: float | None = None
    """Seconds. Older files are removed."""
    max_bytes: int | None = None
    """Of all files. Beyond it, the oldest are removed."""
    units_per_file: int = UNITS_PER_FILE
    lock_wait: float = 0.05
    """Seconds to wait for another process that appends."""
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        """Touches no file."""
        self._lock = threading.Lock()  # guards all below
        self._contents = Contents(self.folder)
        self._flushed = self.clock()
        self._cleaned = float("-inf")

    def append(self, entries: Iterable[Entry]) -> None:
        """Append these, all or nothing. About 0.05 ms, and 0.02 ms per entry.

        Raises JournalError: they were not written, or not flushed. The next append tries again."""
        entries = list(entries)
        with self._guarded("write"), locked(self.folder / "journal.lock", self.lock_wait):
            self._contents.catch_up()
            self._write(entries)
            now = self.clock()
            if not 0 <= now - self._cleaned < _CLEAN_SECONDS:
                self._cleaned = now
                self._clean(now)

    def search(self, partition: TopicPartition, source_ms: int, topic_id: str | None = None) -> Found:
        """Find the units around a source time, for the topic with this id (None: any id).

        After the position was set back, its present branch counts. For a time that this branch has not
        reached again, the furthest branch counts. O(log n) reads after the first call, which reads one file.

        Raises JournalError: it cannot be read."""
        with self._guarded("read"):
            self._contents.look()
            state = self._contents.states.get(key_of(self.group, partition))
            if state is None or (topic_id is not None and state.topic_id not in (0, topic_of(topic_id))):
                return Found(None, None)
            lower: list[Unit] = []
            upper = None
            for head in (state.present, state.furthest):
                if head is None or upper is not None:
                    continue
                if _time(head) < source_ms:
                    lower.append(head)
                    continue
                below, upper = walk(head, lambda each: _time(each) >= source_ms, self._contents.ways)
                if below is not None:
                    lower.append(below)
            return Found(max(lower, key=lambda each: each.offset, default=None), upper)

    def history(self, partition: TopicPartition, limit: int) -> list[Unit]:
        """Return the partition's last units, newest first, for any id of its topic.

        Raises JournalError: it cannot be read."""
        with self._guarded("read"):
            self._contents.look()
            state = self._contents.states.get(key_of(self.group, partition))
            unit = None if state is None else state.last
            found: list[Unit] = []
            while unit is not None and len(found) < limit:
                found.append(unit)
                if unit.previous is None:
                    break
                unit = self._contents.files.read(unit.previous) or self._contents.before(unit, unit.previous)
            return found

    def units(self) -> Iterator[Unit]:
        """Yield all existing units of all groups by number, including copies.

        Raises JournalError: it cannot be read."""
        with self._guarded("read"):
            self._contents.look()
            firsts = self._contents.files.firsts
        for first in firsts:
            with self._guarded("read"):
                found = list(self._contents.files.scan(first))
            yield from found

    def close(self) -> None:
        """Flush what was written, and close the files."""
        with self._lock:
            files = self._contents.files
            with contextlib.suppress(OSError):
                if self.flush is not None and files.firsts:
                    files.flush(files.firsts[-1])
            self._contents.close()

    def _write(self, entries: list[Entry]) -> None:
        """Append units for these, in a new file if the last one is full."""
        contents = self._contents
        firsts = contents.files.firsts
        begin = contents.end
        states: dict[int, State] = {}
        data: list[bytes] = []
        is_new = not firsts or begin - firsts[-1] + len(entries) > self.units_per_file
        if is_new or not contents.complete:
            for key, state in self._worth_carrying():
                copies, states[key] = carried(state, begin + len(data))
                data += [copy.packed() for copy in copies]
        now = int(self.clock() * 1000)
        for place, offset, source_ms, topic_id, moved in entries:
            number = begin + len(data)
            key = key_of(self.group, place)
            flags = MOVED if moved else 0
            made = Unit(number, key, place.partition, topic_of(topic_id), offset, source_ms, now, flags)
            known = states.get(key) or contents.states.get(key)
            unit, states[key] = extended(known, made, contents.ways)
            data.append(unit.packed())
        if is_new and firsts and self.flush is not None:
            contents.files.flush(firsts[-1])
        first = begin if is_new else firsts[-1]
        contents.write(first, data, states)
        if self.flush is not None and (is_new or not 0 <= self.clock() - self._flushed < self.flush):
            contents.files.flush(first, made=is_new)
            self._flushed = self.clock()

    def _worth_carrying(self) -> list[tuple[int, State]]:
        """Return the partitions to copy into a new file. Leaves out those without units for long. If they
        would fill the file, only the most recently moved ones."""
        oldest = 0.0 if self.max_age is None else (self.clock() - self.max_age) * 1000
        found = [each for each in self._contents.states.items() if each[1].last.written_ms >= oldest]
        found.sort(key=lambda each: each[1].last.written_ms)
        return found[-(self.units_per_file // 6) :]  # at most three copies each: half of the file

    def _clean(self, now: float) -> None:
        """Remove files that are too old or too many, but never the last file."""
        files = self._contents.files
        firsts = files.firsts[:-1]
        too_old = 0  # the number of files
        if self.max_age is not None:
            # From the newest back: a clock that was once ahead must not protect the files before that one.
            than = (now - self.max_age) * 1000
            too_old = next((n for n in range(len(firsts), 0, -1) if self._is_older(firsts[n - 1], than)), 0)
        total = sum(files.size(first) for first in files.firsts)
        for place, first in enumerate(firsts):
            if place >= too_old and (self.max_bytes is None or total <= self.max_bytes):
                return
            total -= files.size(first)
            files.remove(first)

    def _is_older(self, first: int, than: float) -> bool:
        """Whether a file's last valid unit was written before `than`, in ms. Without such a unit, the next
        file's time decides."""
        files = self._contents.files
        for number in range(files.end(first) - 1, first - 1, -1):
            unit = files.read(number)
            if unit is not None:
                return unit.written_ms < than
        return False

    @contextlib.contextmanager
    def _guarded(self, verb: str) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except LockHeld as held:
                raise JournalError(str(held)) from None
            except OSError as error:
                told = f"cannot {verb} the journal in {self.folder}: {reason_of(error)}"
                raise JournalError(told) from error
            except NewerUnit as newer:
                raise JournalError(
                    f"the journal in {self.folder} was written by a newer binlane ({newer}): run that "
                    "version, or move the folder away"
                ) from None


def _time(unit: Unit) -> int:
    assert unit.source_ms is not None  # only units with a source time have a place in a chain
    return unit.source_ms
