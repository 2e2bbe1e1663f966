"""What is known of a journal: its files, where they end, and how the units of each partition are linked.

Other partitions' units are between those of one partition. A unit with a source time points to its parent:
the nearest earlier unit whose offset is not beyond its own. So from the newest unit back, offsets only fall.
Times do too, except where the source itself is out of order. This remains true if the position is set back:
units beyond the new position are on another branch, which the chain of parents avoids. The furthest branch is
remembered until the new one overtakes it.

Each unit also has a jump to an earlier one, as in Myers' random-access stack. The lengths of the jumps are
such that O(log n) steps find any place in the chain. Written units never change."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from offsets.journal.files import CARRIED, FURTHEST, LAST, MOVED, PRESENT, SIZE, Unit, UnitFiles

_log = structlog.get_logger(__name__)


class Contents:
    """One process's view of the folder. One thread at a time. Raises OSError, NewerUnit."""

    def __init__(self, folder: Path) -> None:
        self.files = UnitFiles(folder)
        self.states: dict[int, State] = {}
        """By the partition's key."""
        self.complete = False
        """Whether the last file has all its copies: everything else in it was written after them."""
        self.ways = _Ways(self.files.read, lambda unit: self.before(unit, unit.parent, timed=True))
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
        self.states[unit.key] = _noted(self.states.get(unit.key), unit)


class _Ways(NamedTuple):
    """How units are found."""

    read: Callable[[int], Unit | None]
    """By number. None: the unit no longer exists."""
    parent_of: Callable[[Unit], Unit | None]
    """The replacement of an unreadable parent. None: nothing earlier is left."""


class State(NamedTuple):
    """What is known of one partition, enough to append its next unit. Never modified, only replaced."""

    last: Unit
    """The last written unit."""
    topic_id: int = 0
    present: Unit | None = None
    """The last unit with a source time: the head of its chain."""
    furthest: Unit | None = None
    """The head of a branch that reached further, until `present` gets there."""
    jumps: tuple[tuple[int, int], ...] | None = None
    """(number, depth) of `present`, of its jump, of that unit's jump ... None: not read yet."""


def extended(state: State | None, unit: Unit, ways: _Ways) -> tuple[Unit, State]:
    """Return a new unit with its place in the chain, and the state after it.

    O(log n) reads if the position was set back, and for the first unit after a start. Otherwise none."""
    if state is None:
        return unit, _noted(None, unit)
    unit = unit._replace(previous=state.last.number, topic_id=unit.topic_id or state.topic_id)
    now = _noted(state, unit)
    # Another topic with this name has its own chain.
    parent = state.present if state.topic_id in (0, unit.topic_id) else None
    jumps = state.jumps
    if unit.source_ms is not None and parent is not None and parent.offset > unit.offset:
        parent = walk(parent, lambda each: each.offset > unit.offset, ways)[0]
        jumps = None
    if unit.source_ms is None or parent is None:
        return unit, now
    if jumps is None:
        jumps = tuple(_jumps(parent, ways))
    same = len(jumps) > 2 and jumps[0][1] - jumps[1][1] == jumps[1][1] - jumps[2][1]
    rest = jumps[2:] if same else jumps
    unit = unit._replace(parent=parent.number, jump=rest[0][0], depth=parent.depth + 1)
    return unit, now._replace(last=unit, present=unit, jumps=((unit.number, unit.depth), *rest))


def _noted(state: State | None, unit: Unit) -> State:
    """Return the state after a unit read from a file, in the order of unit numbers."""
    if unit.flags & CARRIED:
        if state is None:
            state = State(unit, unit.topic_id)
        if unit.flags & LAST:
            state = state._replace(last=unit, topic_id=unit.topic_id or state.topic_id)
        if unit.flags & PRESENT:
            state = state._replace(present=unit, jumps=None)
        if unit.flags & FURTHEST:
            state = state._replace(furthest=unit)
        return state
    if state is None or (unit.topic_id and state.topic_id and unit.topic_id != state.topic_id):
        state = State(unit, unit.topic_id)
    state = state._replace(last=unit, topic_id=unit.topic_id or state.topic_id)
    if unit.source_ms is None:
        return state
    present, furthest = state.present, state.furthest
    if present is not None and present.offset > unit.offset:
        furthest = _further(present, furthest)
    elif furthest is not None and furthest.offset <= unit.offset:
        furthest = None
    return state._replace(present=unit, furthest=furthest, jumps=None)


def carried(state: State, number: int) -> tuple[list[Unit], State]:
    """Copy a partition's heads, numbered from `number` on. Returns the copies and the state with them."""
    heads: dict[int, int] = {}
    for head, flag in ((state.last, LAST), (state.present, PRESENT), (state.furthest, FURTHEST)):
        if head is not None:
            heads[head.number] = heads.get(head.number, 0) | flag
    found = {each.number: each for each in (state.last, state.present, state.furthest) if each is not None}
    copies: list[Unit] = []
    now: State | None = None
    for original in sorted(heads, key=lambda each: not heads[each] & LAST):
        flags = found[original].flags & MOVED | CARRIED | heads[original]
        copies.append(found[original]._replace(number=number + len(copies), flags=flags))
        now = _noted(now, copies[-1])
    assert now is not None  # there is always a last one
    return copies, now._replace(topic_id=state.topic_id)


def walk(head: Unit, beyond: Callable[[Unit], bool], ways: _Ways) -> tuple[Unit | None, Unit]:
    """Walk from a head that is beyond to (the first unit that is not beyond, the unit after it). None: all
    remaining units are beyond.

    O(log n) reads. If `beyond` changes more than once along the chain, the result is one of these places."""
    unit = head
    while True:
        jump = None if unit.jump is None or unit.jump == unit.parent else ways.read(unit.jump)
        if jump is not None and beyond(jump):
            unit = jump
            continue
        if unit.parent is None:
            return None, unit
        parent = ways.read(unit.parent) or ways.parent_of(unit)
        if parent is None or not beyond(parent):
            return parent, unit
        unit = parent


def _further(one: Unit, other: Unit | None) -> Unit:
    return one if other is None or one.offset > other.offset else other


def _jumps(unit: Unit, ways: _Ways) -> Iterator[tuple[int, int]]:
    each: Unit | None = unit
    while each is not None:
        yield each.number, each.depth
        each = None if each.jump is None else ways.read(each.jump)
