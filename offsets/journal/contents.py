"""The files in a journal's folder, where they end, and each partition's state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

import structlog

from offsets.journal.chains import State, Ways, noted
from offsets.journal.files import UnitFiles
from offsets.journal.unit import CARRIED, LAST, SIZE, Unit

_log = structlog.get_logger(__name__)


class Contents:
    """One process's view of the folder. One thread at a time. Raises OSError, NewerUnit."""

    def __init__(self, folder: Path) -> None:
        self.files = UnitFiles(folder)
        self.states: dict[int, State] = {}
        """By the partition's key."""
        self.complete = False
        """Whether the last file has all its copies: everything else in it was written after them."""
        self.ways = Ways(self.files.read, self._parent_of)
        self._end: int | None = None  # None: not opened

    @property
    def end(self) -> int:
        """The number of the next unit."""
        assert self._end is not None  # opened by the caller
        return self._end

    def look(self) -> None:
        """Open it as a reader, which cuts and locks nothing, unless it is already open."""
        if self._end is None:
            self._end = self._open()

    def catch_up(self) -> None:
        """Read what other processes have written, and cut off a torn end. The caller must hold the lock."""
        firsts = self.files.firsts
        if self._end is None or not firsts or self._is_shorter(firsts[-1], self._end):
            self._end = self._open()
        while self.files.firsts:
            last = self.files.firsts[-1]
            if last + self.files.size(last) / SIZE != self._end:
                torn = self.files.cut(last)
                if torn:
                    _log.warning("journal_cut", path=str(self.files.path(last)), torn_bytes=torn)
                for unit in self.files.scan(last, self._end):
                    self._note(unit)
                self._end = self.files.end(last)
            if last == self._end or not self.files.add(self._end):
                return
            self.complete = False

    def write(self, first: int, data: list[bytes], states: Mapping[int, State]) -> None:
        """Append these units to the file with this first unit, and adopt the states of their partitions."""
        self.files.write(first, self.end, b"".join(data))
        self._end = self.end + len(data)
        self.complete = True
        self.states |= states

    def before(self, unit: Unit, missing: int | None, *, timed: bool = False) -> Unit | None:
        """Find the nearest earlier unit of the same partition if `missing`, on the way back, was cut off or
        damaged. Returns None if its file was removed. `timed`: the unit must be a possible parent. Reads a
        file or two."""
        firsts = self.files.firsts
        if missing is None or not firsts or missing < firsts[0]:
            return None
        for first in reversed(firsts[: bisect_right(firsts, missing)]):
            own = [each for each in self.files.scan(first) if each.key == unit.key]
            found = [each for each in own if each.number < missing]
            if timed:
                found = [each for each in found if each.source_ms is not None and each.offset <= unit.offset]
            else:
                found = [each for each in found if not each.flags & CARRIED or each.flags & LAST]
            if found:
                return found[-1]
        return None

    def close(self) -> None:
        """Close the files and forget all states."""
        self.files.close()
        self.states = {}
        self._end = None

    def _is_shorter(self, last: int, end: int) -> bool:
        """Whether another process removed or cut the file."""
        return self.files.is_gone(last) or last + self.files.size(last) / SIZE < end

    def _open(self) -> int:
        """Read the last file, and earlier ones if it may lack copies. Returns where it ends."""
        self.files.look()
        self.states = {}
        firsts = self.files.firsts
        begin = len(firsts)
        while begin:
            begin -= 1
            if any(not unit.flags & CARRIED for unit in self.files.scan(firsts[begin])):
                break
        end = 0
        for first in firsts[begin:]:
            end, self.complete = first, False
            for unit in self.files.scan(first):
                self._note(unit)
                end = unit.number + 1
        return end

    def _note(self, unit: Unit) -> None:
        self.complete = self.complete or not unit.flags & CARRIED
        self.states[unit.key] = noted(self.states.get(unit.key), unit)

    def _parent_of(self, unit: Unit) -> Unit | None:
        return self.before(unit, unit.parent, timed=True)
