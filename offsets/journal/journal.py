"""The journal of one folder: appended by all workers that use it, searched by time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from offsets.file_lock import LockHeld, locked
from offsets.journal.files import (
    SIZE,
    Entry,
    NewerUnit,
    Unit,
    files_in,
    key_of,
    last_unit,
    topic_of,
    units_of,
    write,
)
from offsets.stores.file import flush_directory, reason_of
from offsets.types import TopicPartition

UNITS_PER_FILE = 16_384
"""1 MiB."""
_CLEAN_SECONDS = 60.0

_log = structlog.get_logger(__name__)


class JournalError(Exception):
    """The journal cannot be read or written. The text says why, and what to do about it."""


class Found(NamedTuple):
    """The units around a source time. Everything below `lower.offset` happened before it; this is true for no
    unit from `upper` on. Both None: none of the partition's times are known."""

    lower: Unit | None
    upper: Unit | None


@dataclass(eq=False)
class Journal:
    """The units of one group in `folder`, which groups and processes may share. Each append locks
    `journal.lock`. Readers never wait, and read all files."""

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
        self._flushed = self.clock()
        self._cleaned = float("-inf")

    def append(self, entries: Iterable[Entry]) -> None:
        """Append these, all or nothing.

        Raises JournalError: they were not written, or not flushed. The next append tries again."""
        with self._guarded("write"), locked(self.folder / "journal.lock", self.lock_wait):
            self._write(list(entries))
            now = self.clock()
            if not 0 <= now - self._cleaned < _CLEAN_SECONDS:
                self._cleaned = now
                self._clean(now)

    def search(self, partition: TopicPartition, source_ms: int, topic_id: str | None = None) -> Found:
        """Find the units around a source time, for the topic with this id (None: any id).

        After the position was set back, its present branch counts. For a time that this branch has not
        reached again, the furthest branch counts. Takes about a second for a million units.

        Raises JournalError: it cannot be read."""
        with self._guarded("read"):
            every = list(units_of(self.folder, {key_of(self.group, partition)}))
        timed: list[Unit] = []
        known = 0  # the topic's id
        for unit in reversed(every):
            if known and unit.topic_id not in (0, known):
                timed = []
            known = unit.topic_id or known
            if unit.source_ms is not None:
                timed.append(unit)
        if not timed or (topic_id is not None and known not in (0, topic_of(topic_id))):
            return Found(None, None)
        found = _around(timed, source_ms)
        furthest = max(range(len(timed)), key=lambda place: (timed[place].offset, place))
        if found.upper is not None or timed[furthest].offset == timed[-1].offset:
            return found
        further = _around(timed[: furthest + 1], source_ms)
        lower = [each for each in (found.lower, further.lower) if each is not None]
        return Found(max(lower, key=lambda each: each.offset), further.upper)

    def history(self, partitions: Iterable[TopicPartition], limit: int) -> dict[TopicPartition, list[Unit]]:
        """Return each partition's last units, newest first, for any id of its topic. Reads each file once.

        Raises JournalError: it cannot be read."""
        found: dict[TopicPartition, list[Unit]] = {one: [] for one in partitions}
        lacking = {key_of(self.group, one): units for one, units in found.items()}
        with self._guarded("read"):
            for unit in units_of(self.folder, lacking):
                lacking[unit.key].append(unit)
                if len(lacking[unit.key]) == limit:
                    del lacking[unit.key]
                    if not lacking:
                        break
        return found

    def _write(self, entries: list[Entry]) -> None:
        """Append units for these, in a new file if the last one is full. Cuts off a torn end."""
        files = files_in(self.folder)
        first, end = max(files, default=0), 0
        if files:
            _, end, size = last_unit(files[first])
            if end < size:
                _log.warning("journal_cut", path=str(files[first]), torn_bytes=size - end)
                write(self.folder, first, end, b"", flush=False)
        number = first + end // SIZE
        is_new = not files or number - first + len(entries) > self.units_per_file
        if is_new:
            if files and self.flush is not None:
                write(self.folder, first, end, b"", flush=True)  # the file that is now full
            first, end = number, 0
        now = self.clock()
        written = int(now * 1000)
        data = []
        for new, (place, offset, source_ms, topic_id, moved) in enumerate(entries, number):
            key, topic = key_of(self.group, place), topic_of(topic_id)
            data.append(Unit(new, key, place.partition, topic, offset, source_ms, written, moved).packed())
        due = self.flush is not None and (is_new or not 0 <= now - self._flushed < self.flush)
        write(self.folder, first, end, b"".join(data), flush=due)
        if due:
            self._flushed = now
            if is_new:
                flush_directory(self.folder)

    def _clean(self, now: float) -> None:
        """Remove files that are too old or too many, but never the last file."""
        files = list(files_in(self.folder).values())
        sizes, too_old = [], 0
        than = float("-inf") if self.max_age is None else (now - self.max_age) * 1000
        for place, path in enumerate(files):
            last, _, size = last_unit(path)
            sizes.append(size)
            # A clock that was once ahead must not protect the files before that one.
            if last is not None and last.written_ms < than:
                too_old = place + 1
        for place, path in enumerate(files[:-1]):
            if place >= too_old and (self.max_bytes is None or sum(sizes[place:]) <= self.max_bytes):
                return
            path.unlink(missing_ok=True)

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


def _around(units: Sequence[Unit], source_ms: int) -> Found:
    """Find the units around a time on the branch of the last unit: back from there, offsets only fall."""
    upper = None
    for unit in reversed(units):
        if upper is not None and unit.offset > upper.offset:
            continue
        assert unit.source_ms is not None
        if unit.source_ms < source_ms:
            return Found(unit, upper)
        upper = unit
    return Found(None, upper)
