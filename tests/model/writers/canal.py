"""Canal's flat messages and packets of MySQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import canal_packets

from worker.formats.canal.format import Canal
from worker.formats.interface import Format

from ..source import ALL_COLUMNS, LARGE, Event, Row
from ..told import Move, Put, Told
from .writing import Names, Written, compact, told_whole

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
    def of(cls, names: Names, event: Event, *, without_blobs: bool) -> _Logged:
        told, before, after = told_whole(names, event), event.before, event.after
        if without_blobs and before is not None:
            before = {name: value for name, value in before.items() if name != LARGE}
            if after is not None and LARGE not in event.changed:
                after = {name: value for name, value in after.items() if name != LARGE}
                if isinstance(told, Put):
                    told = Put(told.key, after, told.replaces, in_parts=True, tells_old=False)
                elif isinstance(told, Move):
                    told = Move(told.old, told.key, after, in_parts=True, tells_old=False)
        return cls(event.op, _texts(before), _texts(after), told)

    @property
    def statement(self) -> tuple[str, frozenset[str]]:
        """Rows of one statement have it in common."""
        return self.op, frozenset(self.after or self.before or ())


def _logged(names: Names, events: Sequence[Event], *, without_blobs: bool) -> Iterator[list[_Logged]]:
    """By statements. MySQL's log lacks an update that changes nothing. Canal reads no snapshot, and its
    filter leaves an ALTER out."""
    rows = [
        _Logged.of(names, event, without_blobs=without_blobs)
        for event in events
        if event.op not in ("snapshot", "alter") and (event.op != "update" or event.changed)
    ]
    return (list(group) for _, group in itertools.groupby(rows, lambda row: row.statement))


@dataclass(frozen=True)
class Flat:
    """`without_blobs`: binlog_row_image=NOBLOB, else FULL."""

    without_blobs: bool

    @property
    def tells_old_rows(self) -> bool:
        """Not if nothing but a large value changed."""
        return not self.without_blobs

    @property
    def tells_gaps(self) -> bool:
        return not self.without_blobs

    def format(self, names: Names) -> Format:
        return Canal()

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for rows in _logged(names, events, without_blobs=self.without_blobs):
            if rows[0].op == "truncate":
                for row in rows:
                    yield Written([row.told], self._message(names, "TRUNCATE", sql=f"TRUNCATE {names.table}"))
                continue
            data = [row.after or row.before for row in rows]
            old = [_old(row) for row in rows] if rows[0].op == "update" else None
            fields: dict[str, Any] = {
                "data": data,
                # Canal leaves out what has no old value.
                "old": None if old is None or not any(old) else old,
                "mysqlType": {name: ALL_COLUMNS[name] for name in data[0] or ()},
                "pkNames": list(names.key),
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
    return {name: old for name, old in before.items() if old != after.get(name)}


@dataclass(frozen=True)
class Packets:
    """All that was read at once is one record."""

    without_blobs: bool
    tells_old_rows = True
    tells_gaps = True

    def format(self, names: Names) -> Format:
        return Canal()

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        entries, told = [], []
        for rows in _logged(names, events, without_blobs=self.without_blobs):
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
