"""Maxwell's records of MySQL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from captured import CapturedRecord

from worker.formats.interface import Format
from worker.formats.maxwell.format import Maxwell as Reader

from ..source import ALL_COLUMNS, COLUMNS, Event, Row
from ..told import Move, One, Put, Remove, Told
from .writing import Image, Names, Written, compact, logged, told_whole

_TYPES = {"insert": "insert", "update": "update", "delete": "delete", "snapshot": "bootstrap-insert"}
_SIMPLE = {"id": "bigint", "region": "varchar", "amount": "decimal", "note": "varchar", "doc": "text"}
_SIMPLE |= {"stage": "varchar", "weight": "int", "memo": "varchar"}


def _numbers(row: Row) -> Row:
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in row.items()}


@dataclass(frozen=True)
class Maxwell:
    """`knows_types`: by its topic of statements."""

    knows_types: bool
    image: Image = "full"
    tells_whole = True

    @property
    def tells_gaps(self) -> bool:
        """Without definitions nobody knows which columns there are."""
        return self.knows_types or self.image == "full"

    @property
    def tells_old_rows(self) -> bool:
        return self.image == "full"

    @property
    def moves_keys(self) -> bool:
        """What it does not say of the old row looks unchanged."""
        return self.image == "full"

    def format(self, names: Names) -> Format:
        made = Reader()
        if self.knows_types:
            made.learn(_definition(names, "create", tuple(COLUMNS)))
        return made

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for event in events:
            if event.op == "alter":
                if self.knows_types:
                    yield Written([], None, teaches=_definition(names, "alter", event.columns))
                continue
            if event.op == "truncate" or (event.op == "update" and not event.changed):
                continue  # it writes nothing of these
            before, after = event.before, event.after
            if event.op != "snapshot":
                before, after = logged(names, event, self.image)
            # What the old row has alone is in the new one.
            row = after or before or {}
            row = {**(before or {}), **row}
            row = {name: row[name] for name in event.columns if name in row}
            value: dict[str, Any] = {
                "database": names.database,
                "table": names.table,
                "type": _TYPES[event.op],
                "ts": 1_763_000_000,
                "xid": 77,
                "commit": True,
                "position": _position(event.columns, 50),
                "primary_key_columns": list(names.key),
                "data": _numbers(row),
            }
            if event.op == "update":
                old = {name: value for name, value in (before or {}).items() if name in event.changed}
                value["old"] = _numbers(old)
            key = {"database": names.database, "table": names.table}
            key |= {f"pk.{name}": row[name] for name in names.key}
            if not names.key:
                key["_uuid"] = "bd12b7fc-454e-45ab-a703-946c06ec5080"
            told = self._told(names, event, row)
            yield Written([told], compact(value), compact(key))

    def _told(self, names: Names, event: Event, row: Row) -> Told:
        told = told_whole(names, event)
        tells_old = self.image == "full"
        if isinstance(told, Remove):
            return replace(told, tells_old=told.tells_old and tells_old)
        if isinstance(told, One):
            return replace(told, in_parts=event.op in ("update", "delete") and not self.knows_types)
        if isinstance(told, Put) and event.op != "update":
            return replace(told, row=row)
        if isinstance(told, Put):
            told = replace(told, hides_gaps=not self.tells_gaps)
        if isinstance(told, Move | Put):
            # Whether the row is whole is not known without the table's definition.
            in_parts = not self.knows_types or row.keys() != set(event.columns)
            return replace(told, row=row, in_parts=in_parts, tells_old=told.tells_old and tells_old)
        return told


def _position(columns: Sequence[str], after: int) -> str:
    """Rows come after the statement that gave their table its columns."""
    return f"mysql-bin.000002:{100 * len(columns) + after}"


def _definition(names: Names, kind: Literal["create", "alter"], columns: Sequence[str]) -> CapturedRecord:
    def definition(of: Sequence[str]) -> dict[str, Any]:
        return {
            "database": names.database,
            "charset": "utf8mb4",
            "table": names.table,
            "columns": [{"name": name, "type": _SIMPLE[name], "signed": True} for name in of],
            "primary-key": list(names.key),
        }

    made = ", ".join(f"{name} {ALL_COLUMNS[name]}" for name in columns)
    statement = f"CREATE TABLE {names.table} ({made}, PRIMARY KEY ({', '.join(names.key)}))"
    if kind == "alter":
        statement = f"ALTER TABLE {names.table} ADD COLUMN {columns[-1]} {ALL_COLUMNS[columns[-1]]}"
    value = {
        "type": f"table-{kind}",
        "database": names.database,
        "table": names.table,
        "def": definition(columns),
        "ts": 1_763_000_000_999,
        "sql": statement,
        "position": _position(columns, 0),
    }
    if kind == "alter":
        value["old"] = definition(columns[:-1])
    data = json.dumps(value).encode()
    return CapturedRecord("maxwell_ddl", 0, len(columns), 1_763_000_000_999, b"a-bare-uuid", data, [])
