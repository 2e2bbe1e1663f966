"""Canal's flat messages and packets of MySQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import canal_packets

from worker.formats.canal.format import Canal
from worker.formats.interface import Format

from ..source import ALL_COLUMNS, LARGE, Event, Row
from ..told import Move, Put, Remove, Told, Untold
from .writing import Image, Names, Written, compact, logged, told_whole

_TYPES = {"insert": "INSERT", "update": "UPDATE", "delete": "DELETE"}
_EVENTS = {"insert": canal_packets.INSERT, "update": canal_packets.UPDATE, "delete": canal_packets.DELETE}


def _texts(row: Row | None) -> dict[str, str | None] | None:
    return None if row is None else {name: None if v is None else str(v) for name, v in row.items()}


@dataclass(frozen=True)
class _Logged:
    """A row's change as MySQL logs it."""

    op: str
    before: dict[str, str | None] | None
    after: dict[str, str | None] | None
    told: Told

    @classmethod
    def of(cls, names: Names, event: Event, image: Image, *, tells_key: bool) -> _Logged:
        before, after = logged(names, event, image)
        told = told_whole(names, event)
        if image != "full":
            told = cls._told(told, event, image, after or {})
            if isinstance(told, Untold) and tells_key:
                row = {**names.of(event.before or {}), **(after or {})}
                told = Put(told.key, row, replaces=False, in_parts=True, tells_old=False)
        return cls(event.op, _texts(before), _texts(after), told)

    @staticmethod
    def _told(told: Told, event: Event, image: Image, after: Row) -> Told:
        if isinstance(told, Remove):
            return replace(told, tells_old=False)
        if isinstance(told, Put) and event.op != "update":
            return replace(told, row=after)
        if image == "minimal" and isinstance(told, Put):
            return Untold(told.key)  # its key is not in the new row
        if isinstance(told, Put | Move):
            return replace(told, row=after, in_parts=LARGE not in after, tells_old=False)
        return told

    @property
    def statement(self) -> tuple[str, frozenset[str]]:
        """Rows of one statement have it in common."""
        return self.op, frozenset(self.after or self.before or ())


def _logged(
    names: Names, events: Sequence[Event], image: Image, *, tells_key: bool = False
) -> Iterator[list[_Logged]]:
    """By statements. MySQL's log lacks an update that changes nothing. Canal reads no snapshot, and its
    filter leaves an ALTER out."""
    rows = [
        _Logged.of(names, event, image, tells_key=tells_key)
        for event in events
        if event.op not in ("snapshot", "alter") and (event.op != "update" or event.changed)
    ]
    return (list(group) for _, group in itertools.groupby(rows, lambda row: row.statement))


@dataclass(frozen=True)
class Flat:
    image: Image

    @property
    def tells_old_rows(self) -> bool:
        """Not if nothing but a large value changed."""
        return self.image == "full"

    @property
    def tells_gaps(self) -> bool:
        return self.image != "noblob"

    @property
    def tells_whole(self) -> bool:
        return self.image == "full"

    @property
    def moves_keys(self) -> bool:
        """A new row of nothing but its key is taken for a whole one."""
        return self.image != "minimal"

    def format(self, names: Names) -> Format:
        return Canal()

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for rows in _logged(names, events, self.image):
            if rows[0].op == "truncate":
                for row in rows:
                    yield Written([row.told], self._message(names, "TRUNCATE", sql=f"TRUNCATE {names.table}"))
                continue
            data = [row.after or row.before for row in rows]
            old = [_old(row) for row in rows] if rows[0].op == "update" else None
            fields: dict[str, Any] = {
                "data": data,
                "old": old,
                "mysqlType": {name: ALL_COLUMNS[name] for name in data[0] or ()},
                # Those of the row that Canal writes.
                "pkNames": [name for name in names.key if name in (data[0] or ())] or None,
            }
            told = [row.told for row in rows]
            yield Written(told, self._message(names, _TYPES[rows[0].op], **fields))

    @staticmethod
    def _message(names: Names, type_: str, **fields: Any) -> bytes:
        whole = {
            "data": None,
            "database": names.database,
            "es": canal_packets.ES,
            "gtid": "",
            "id": 19,
            "isDdl": "sql" in fields,
            "mysqlType": None,
            "old": None,
            "pkNames": None,
            "sql": "",
            "sqlType": None,
            "table": names.table,
            "ts": canal_packets.ES + 100,
            "type": type_,
        }
        return compact(whole | fields)


def _old(row: _Logged) -> dict[str, str | None]:
    before, after = row.before or {}, row.after or {}
    return {name: old for name, old in before.items() if name in after and old != after[name]}


@dataclass(frozen=True)
class Packets:
    """All that was read at once is one record."""

    image: Image
    tells_gaps = True

    @property
    def tells_old_rows(self) -> bool:
        return self.image != "minimal"

    @property
    def tells_whole(self) -> bool:
        return self.image == "full"

    @property
    def moves_keys(self) -> bool:
        return self.image != "minimal"

    def format(self, names: Names) -> Format:
        return Canal()

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        entries, told = [], []
        # What an update does not set is in the row before, of which a flat message has what changed.
        for rows in _logged(names, events, self.image, tells_key=True):
            told += [row.told for row in rows]
            if rows[0].op == "truncate":
                entries += [
                    canal_packets.ddl(
                        names.table,
                        f"TRUNCATE TABLE {names.table}",
                        event=canal_packets.TRUNCATE,
                        database=names.database,
                    )
                    for _ in rows
                ]
                continue
            made = [
                canal_packets.row(row.after, row.before, types=ALL_COLUMNS, key=names.key) for row in rows
            ]
            event = _EVENTS[rows[0].op]
            entries.append(canal_packets.rows(names.table, *made, event=event, database=names.database))
        if entries:
            yield Written(told, canal_packets.packet(canal_packets.begin(), *entries, canal_packets.end()))
