"""In which order records count as finished where some were taken apart by their tables.

Such a record counts when all its pieces are done. A restart repeats what does not count: the pieces, too,
that were done. What came after one of them in its table must then come again as well, else the last that a
target hears of a row is an old state. So until the whole record counts, its tables hold back what they finish
behind it; they go on working meanwhile.

A table in row order may be done with a record before an earlier one: then they have no row in common (see
`worker.units.finish_order`), and the later one need not wait. What waits, waits for lower offsets alone, so
records never wait for each other in a ring.
"""

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

Record = TypeVar("Record")
_Table = tuple[str, str]
"""Database and name."""


@dataclass(slots=True, eq=False)
class _Whole:
    """A record that was taken apart."""

    run: Run
    offset: int
    tables: list[_Table] = field(default_factory=list)
    """Those that have pieces of it."""
    undone: int = 0
    """How many of them are not through with theirs."""


@dataclass(slots=True, eq=False)
class _Pieces:
    """Those that one table has of a record: a statement among its rows makes several."""

    whole: _Whole
    left: int


@dataclass(slots=True)
class _HeldBack:
    """What one table has done and what does not count yet."""

    wholes: list[_Whole] = field(default_factory=list)
    """By their offsets."""
    own: list[tuple[int, int, Run]] = field(default_factory=list)
    """A heap of records that are the table's own: (offset, number of the run, run)."""


_offset = attrgetter("offset")


class PieceOrder:
    """Of one partition, from its assignment to its revocation."""

    __slots__ = ("_lock", "_tables")

    def __init__(self) -> None:
        # Guards all below, and what is counted down of pieces: processors finish several tables at once.
        self._lock = threading.Lock()
        self._tables: dict[_Table, _HeldBack] = {}  # those that hold something back

    def runs(
        self, run: Run, offsets: Mapping[_Table, Iterable[int]], taken_apart: Collection[int]
    ) -> dict[_Table, TableRun]:
        """What stands for the run in each table.

        `offsets`: table -> those of what it gets of the run, pieces each for itself; `taken_apart`: of the
        records that are not one table's. One that no table gets anything of is not among them."""
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
        """Records, or pieces of them, that are done and do not count yet."""
        with self._lock:
            return sum(len(each.wholes) + len(each.own) for each in self._tables.values())

    def done(self, table: _Table, run: Run, offsets: Sequence[int], pieces: Mapping[int, _Pieces]) -> None:
        """The table is through with these, each of which it had once."""
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
        """Finish what nothing is before any more, in this table and those that go on by it."""
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
        """Whether all of it is done, and nothing before it in any of its tables waits."""
        return not whole.undone and all(self._tables[each].wholes[0] is whole for each in whole.tables)


@dataclass(slots=True, eq=False)
class TableRun:
    """A run of offsets as one table finishes it; see `offsets.run.Run`. Any thread."""

    order: PieceOrder
    table: _Table
    run: Run
    pieces: Mapping[int, _Pieces]

    def finish(self, offsets: Sequence[int]) -> None:
        """Mark these as done by the table, each as often as it has pieces of it."""
        self.order.done(self.table, self.run, offsets, self.pieces)

    def finish_records(self, records: Sequence[Record], offset_of: Callable[[Record], int]) -> None:
        """The same for what has these offsets."""
        self.finish([offset_of(record) for record in records])


AnyRun = Run | TableRun
"""What records are finished in."""
