"""The order in which records count as finished if some were split by table.

A split record counts as finished when all its pieces are. A restart repeats every record that does not count,
including its finished pieces. Later records of these tables must then be repeated too. Otherwise, a target's
last change of a row would be an old one. So until the whole record counts, its tables continue to work, but
hold back what they finish after it.

A table in row order may finish a record before an earlier one. The two then have no row in common (see
`worker.units.finish_order`), so the later one need not wait. Records wait only for lower offsets, so they
never wait for each other in a cycle."""

from __future__ import annotations

import heapq
import threading
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeVar

from offsets.run import Run
from offsets.tracker import OffsetTracker

Record = TypeVar("Record")
_Table = tuple[str, str]
"""Database and name."""


@dataclass(slots=True, eq=False)
class _Whole:
    """A record that was split."""

    run: Run
    offset: int
    tables: list[_Table] = field(default_factory=list)
    """The tables that have pieces of the record."""
    undone: int = 0
    """How many of these tables have not finished their pieces."""


@dataclass(slots=True, eq=False)
class _Pieces:
    """The pieces of one record in one table. A statement between its rows makes several."""

    whole: _Whole
    left: int


@dataclass(slots=True)
class _HeldBack:
    """Records that one table has finished and that do not count yet."""

    wholes: list[_Whole] = field(default_factory=list)
    """By offset."""
    own: list[tuple[int, int, Run]] = field(default_factory=list)
    """A heap of records that belong to this table alone: (offset, number of the run, run)."""


_offset = attrgetter("offset")


class PieceOrder:
    """The order of one partition, from its assignment to its revocation."""

    __slots__ = ("_lock", "_tables")

    def __init__(self) -> None:
        # Guards all below, and the pieces' counters: several processors finish tables at the same time.
        self._lock = threading.Lock()
        self._tables: dict[_Table, _HeldBack] = {}  # those that hold something back

    def runs(
        self, run: Run, offsets: Mapping[_Table, Iterable[int]], taken_apart: Collection[int]
    ) -> dict[_Table, TableRun]:
        """Return what represents the run in each table.

        `offsets`: table -> the offsets of its records in the run, one for each piece. `taken_apart`: the
        offsets of split records, except those without a piece for any table."""
        wholes = {offset: _Whole(run, offset) for offset in taken_apart}
        runs: dict[_Table, TableRun] = {}
        for table, own in offsets.items():
            pieces = {}
            for offset, count in Counter(offset for offset in own if offset in wholes).items():
                whole = wholes[offset]
                whole.tables.append(table)
                whole.undone += 1
                pieces[offset] = _Pieces(whole, count)
            runs[table] = TableRun(self, table, run, pieces)
        return runs

    @property
    def held_back(self) -> int:
        """Finished records, or pieces, that do not count yet."""
        with self._lock:
            return sum(len(each.wholes) + len(each.own) for each in self._tables.values())

    def done(self, table: _Table, run: Run, offsets: Sequence[int], pieces: Mapping[int, _Pieces]) -> None:
        """The table has finished these records or pieces."""
        with self._lock:
            held = self._tables.get(table)
            if held is None:
                if not pieces:
                    run.finish(offsets)
                    return
                held = self._tables[table] = _HeldBack()
            for offset in offsets:
                piece = pieces.get(offset)
                if piece is None:
                    heapq.heappush(held.own, (offset, run.number, run))
                    continue
                piece.left -= 1
                if piece.left == 0:
                    piece.whole.undone -= 1
                    insort(held.wholes, piece.whole, key=_offset)
            self._advance(table)

    def _advance(self, table: _Table) -> None:
        """Finish everything that no longer waits, in this table and in those that continue as a result."""
        due = deque([table])
        while due:
            held = self._tables.get(table := due.popleft())
            if held is None:
                continue
            while held.wholes and self._counts(held.wholes[0]):
                whole = held.wholes[0]
                for each in whole.tables:
                    del self._tables[each].wholes[0]
                due.extend(each for each in whole.tables if each != table)
                whole.run.finish((whole.offset,))
            first = held.wholes[0].offset if held.wholes else None
            while held.own and (first is None or held.own[0][0] < first):
                offset, _, run = heapq.heappop(held.own)
                run.finish((offset,))
            if not held.wholes and not held.own:
                del self._tables[table]

    def _counts(self, whole: _Whole) -> bool:
        """Whether all its pieces are finished, and it is the first waiting record in each of its tables."""
        return not whole.undone and all(self._tables[each].wholes[0] is whole for each in whole.tables)


@dataclass(slots=True, eq=False)
class TableRun:
    """A run of offsets as one table finishes it (see `offsets.run.Run`). Any thread."""

    order: PieceOrder
    table: _Table
    run: Run
    pieces: Mapping[int, _Pieces]

    def finish(self, offsets: Sequence[int]) -> None:
        """Mark these as finished by the table, each once for each of its pieces."""
        self.order.done(self.table, self.run, offsets, self.pieces)

    def finish_records(self, records: Sequence[Record], offset_of: Callable[[Record], int]) -> None:
        """The same, for records with these offsets."""
        self.finish([offset_of(record) for record in records])


AnyRun = Run | TableRun | OffsetTracker
"""The run that records are finished in; the tracker, if they are from several runs."""
