"""Record which source table owns each target table, beside the marks and for all handlers.

Two source tables may collide in one target table if names ignore case or if a template joins names. A
template without the database or the table maps several tables to one on purpose, so they share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations

import msgspec
import sqlalchemy as sa

from handlers.mysql.ddl import TableName
from handlers.sql.naming import Naming
from handlers.sql.own_tables import OwnTables, insert_if_missing
from handlers.sql.target.known_tables import TableName as TargetName

_OF_TARGET = -4  # as its shard
_LONGEST = 200
"""Size of the column `source_table` in characters."""
_ANYBODY = {"worker": "", "handler": "", "shard": _OF_TARGET, "topic": ""}
_HERE = {"kafka_partition": 0, "kafka_offset": 0, "change_index": 0}

Told = tuple[str | None, str | None]
"""(database, table) of a source table, with None for a part that the templates do not use."""


@dataclass(frozen=True, slots=True)
class Owners:
    """All methods use the caller's transaction. `marks` is the table of marks."""

    connection: sa.Connection
    marks: sa.Table
    naming: Naming
    own_tables: OwnTables
    kept: Callable[[], Sequence[str]]
    """Returns the source tables ("database.table") that the handler replicates."""

    def claim(self, source: TableName, *, is_there: bool = True) -> str:
        """Claim the target table for the source table. Return why that is impossible, or an empty text.
        `is_there`: whether the target table exists, and so may contain rows of a former owner."""
        own, target = self.naming.asked(*source), self.naming.target(*source)
        if own == (None, None):
            return ""
        former: list[str] = []
        if not is_there:
            self.note_gone(source)
            former = [name for name in self.kept() if self._key(self._target(name)) == self._key(target)]
        known, _ = self._owner(target)
        if known is None:
            self._note(target, [*own, *former])
            known, _ = self._owner(target)  # another session may have claimed it first
        if known is None or _agree(known, own):
            return ""
        shown, key = ".".join(part or "*" for part in known), self._key(target).replace("'", "''")
        return (
            f"{'.'.join(filter(None, target))} of the target holds the rows of {shown}: both names are the "
            "same there. Set table or schema to make them differ, or route one of them to another handler. "
            f"If {shown} no longer exists, or is a former name of this table: DELETE FROM "
            f"{self.marks.fullname} WHERE worker = '' AND source_table = '{key}'"
        )

    def are_one(self, one: TableName, other: TableName) -> bool:
        """Return whether two source tables use the same target table."""
        return self._key(self.naming.target(*one)) == self._key(self.naming.target(*other))

    def note_moved(self, old: TableName, new: TableName) -> None:
        """Record that the target's table of `old` now belongs to `new`."""
        self.note_gone(old)
        self.claim(new, is_there=False)

    def note_aside(self, source: TableName, target: TargetName) -> None:
        """Record that this table gets the history of a table that the source has dropped."""
        self._note(target, self.naming.asked(*source))

    def note_gone(self, source: TableName) -> None:
        """Record that the target table no longer exists."""
        self.connection.execute(self.marks.delete().where(self._row(self.naming.target(*source))))

    def met(self, sources: Iterable[str]) -> str:
        """Return a sentence about two of these source tables ("database.table") that collide in one target
        table; empty if none do."""
        found: dict[TargetName, set[str]] = {}
        for name in sources:
            found.setdefault(self.own_tables.folded(self._target(name)), set()).add(name)
        for target, names in found.items():
            _, former = self._owner(target)
            for one, other in combinations(sorted(names.difference(former)), 2):
                if not _agree(self._asked(one), self._asked(other)):
                    return (
                        f"{one} and {other} share one table; set table or schema to make them differ, or "
                        "route one of them to another handler, and reload both"
                    )
        return ""

    # ---- rows

    def _note(self, target: TargetName, owner: Sequence[str | None]) -> None:
        text = msgspec.json.encode(owner).decode()
        row = {**_ANYBODY, **_HERE, "source_table": self._key(target), "owner": text}
        self.connection.execute(insert_if_missing(self.connection.dialect.name, self.marks), row)

    def _owner(self, target: TargetName) -> tuple[Told | None, Sequence[str]]:
        """Return the owner (or None) and the source tables that used the target table before it."""
        found = self.connection.scalar(sa.select(self.marks.c.owner).where(self._row(target)))
        if found is None:
            return None, ()
        database, table, *former = msgspec.json.decode(found, type=list[str | None])
        own = {name for name in former if name and _agree((database, table), self._asked(name))}
        return (database, table), [name for name in former if name and name not in own]

    def _asked(self, name: str) -> Told:
        return self.naming.asked(*name.split(".", 1))

    def _target(self, name: str) -> TargetName:
        return self.naming.target(*name.split(".", 1))

    def _row(self, target: TargetName) -> sa.ColumnElement[bool]:
        columns = self.marks.c
        where = [columns[name] == value for name, value in _ANYBODY.items()]
        return sa.and_(*where, columns.source_table == self._key(target))

    def _key(self, target: TargetName) -> str:
        """Return a key that is the same for all names of one table."""
        text = msgspec.json.encode(self.own_tables.folded(target)).decode()
        return text if len(text) <= _LONGEST else sha256(text.encode()).hexdigest()


def _agree(one: Told, other: Told) -> bool:
    return all(None in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True))
