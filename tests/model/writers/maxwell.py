"""Maxwell's records of MySQL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from captured import CapturedRecord

from worker.formats.interface import Format
from worker.formats.maxwell.format import Maxwell as Reader

from ..source import COLUMNS, Event, Row
from ..told import Move, Put
from .writing import Names, Written, compact, told_whole

__all__ = ["Maxwell"]

_TYPES = {"insert": "insert", "update": "update", "delete": "delete", "snapshot": "bootstrap-insert"}
_SIMPLE = {"id": "bigint", "region": "varchar", "amount": "decimal", "note": "varchar", "doc": "text"}


def _numbers(row: Row) -> Row:
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in row.items()}


@dataclass(frozen=True)
class Maxwell:
    """With whole rows. `knows_types`: by its topic of statements."""

    knows_types: bool
    tells_old_rows = True
    tells_gaps = True

    def format(self, names: Names) -> Format:
        made = Reader()
        if self.knows_types:
            made.learn(self._definition(names))
        return made

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for event in events:
            if event.op == "truncate" or (event.op == "update" and not event.changed):
                continue  # it writes nothing of these
            row = event.after or event.before or {}
            value: dict[str, Any] = {
                "database": names.database,
                "table": names.table,
                "type": _TYPES[event.op],
                "ts": 1_763_000_000,
                "xid": 77,
                "commit": True,
                "position": "mysql-bin.000002:500",
                "primary_key_columns": list(names.key),
                "data": _numbers(row),
            }
            if event.op == "update":
                old = event.before or {}
                value["old"] = _numbers({name: old[name] for name in COLUMNS if name in event.changed})
            key = {"database": names.database, "table": names.table}
            key |= {f"pk.{name}": row[name] for name in names.key}
            told = told_whole(names, event)
            if isinstance(told, Move | Put) and event.op == "update":
                # Whether the row is whole is not known without the table's definition.
                told = replace(told, in_parts=not self.knows_types)
            yield Written([told], compact(value), compact(key))

    def _definition(self, names: Names) -> CapturedRecord:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        made = {
            "database": names.database,
            "charset": "utf8mb4",
            "table": names.table,
            "columns": [{"name": name, "type": kind, "signed": True} for name, kind in _SIMPLE.items()],
            "primary-key": list(names.key),
        }
        value = {
            "type": "table-create",
            "database": names.database,
            "table": names.table,
            "def": made,
            "ts": 1_763_000_000_999,
            "sql": f"CREATE TABLE {names.table} ({columns}, PRIMARY KEY ({', '.join(names.key)}))",
            "position": "mysql-bin.000001:4",
        }
        data = json.dumps(value).encode()
        return CapturedRecord("maxwell_ddl", 0, 0, 1_763_000_000_999, b"a-bare-uuid", data, [])
