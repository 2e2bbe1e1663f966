"""What a table looked like at a place of its source's log, for formats whose records do not say."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from handlers.logs import get_logger

log = get_logger("formats")

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table between two DDL statements. Never changed: threads share it, and compare it by identity."""

    types: Mapping[str, str]
    """Column -> type text in MySQL's spelling (`bigint unsigned`, `enum('a','b')`), in column order."""
    key_columns: tuple[str, ...] | None
    """None: the table has no primary key."""


class _Line(NamedTuple):
    """The definitions of one table, by place. Replaced as a whole, so that readers need no lock."""

    orders: tuple[Order, ...]
    """Ascending, each once."""
    learned: tuple[tuple[TableDefinition | None, ...], ...]
    """What was learned at each place, in the order of learning, each once; None: the table was dropped."""


class TableHistory:
    """Definitions of tables by their place in the source's log. The fetcher's thread learns, processors look
    up, both at any time.

    A rename is two lessons: the old name was dropped, the new one has the definition."""

    def __init__(self) -> None:
        self._learning = Lock()  # guards writes to _lines and version; reading takes one lookup and no lock
        self.version = 0
        """Grows with everything new that was learned: what was found with the same version before is still
        so."""
        self._lines: dict[tuple[str, str, str], _Line] = {}
        self._told: set[tuple[str, str, str]] = set()

    def learn(
        self, stream: str, database: str, table: str, order: Order, definition: TableDefinition | None
    ) -> None:
        """From this place on the table has this definition; None: it is gone.

        In any order. What was learned last counts where several are learned at one place (a snapshot writes
        DROP and CREATE, a swap of names several renames). Learning again what was learned at this place
        changes nothing, not even for a moment."""
        name = (stream, database, table)
        with self._learning:
            orders, learned = self._lines.get(name, _Line((), ()))
            at = bisect_right(orders, order)
            if at and orders[at - 1] == order:
                if definition not in learned[at - 1]:
                    here = (*learned[at - 1], definition)
                    self._lines[name] = _Line(orders, (*learned[: at - 1], here, *learned[at:]))
                    self.version += 1
                return
            self._lines[name] = _Line(
                (*orders[:at], order, *orders[at:]), (*learned[:at], (definition,), *learned[at:])
            )
            # Last: who reads the new number finds what it stands for.
            self.version += 1

    def find(self, stream: str, database: str, table: str, order: Order) -> TableDefinition | None:
        """The latest definition at this place or before it; with an empty order the latest of all.

        None for a table that was dropped, or that nothing is known of. 0.2 us, and the same object as long
        as nothing new was learned."""
        line = self._lines.get((stream, database, table))
        if line is None:
            return None
        orders, learned = line
        if not order or order >= orders[-1]:
            return learned[-1][-1]
        at = bisect_right(orders, order)
        if at:
            return learned[at - 1][-1]
        self._tell(stream, database, table, order, orders[0])
        return None

    def _tell(self, stream: str, database: str, table: str, order: Order, first: Order) -> None:
        """Once for each table: its records may be of another log, whose numbers count anew."""
        if (stream, database, table) in self._told:
            return
        self._told.add((stream, database, table))
        log.warning(
            "definitions_begin_later",
            table=f"{database}.{table}",
            source=stream,
            place=order,
            first=first,
            hint="values are read without the table's definition; if the source's log restarted (another "
            "primary), let the tool write its table definitions again",
        )

    def until(self, stream: str, database: str, table: str, order: Order) -> Order | None:
        """The first place after this one where something else was learned; None: there is none."""
        line = self._lines.get((stream, database, table))
        if line is None:
            return None
        at = bisect_right(line.orders, order)
        return line.orders[at] if at < len(line.orders) else None
