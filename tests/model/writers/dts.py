"""DTS's records of MySQL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dts_records

from worker.formats.dts.format import DTS as READER
from worker.formats.interface import Format

from ..source import Event, Row
from .writing import Names, Written, told_whole

_NUMBERS = {"id": 8, "region": 253, "amount": 246, "note": 253, "doc": 252}
_NUMBERS |= {"stage": 253, "weight": 3, "memo": 253}
_OPERATIONS = {"insert": "INSERT", "update": "UPDATE", "delete": "DELETE"}


@dataclass(frozen=True)
class DTS:
    """With whole rows."""

    tells_old_rows = True
    tells_gaps = True
    tells_whole = True
    moves_keys = True

    def format(self, names: Names) -> Format:
        return READER()

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for event in events:
            if event.op in ("snapshot", "alter") or (event.op == "update" and not event.changed):
                continue
            fields: dict[str, Any] = {
                "objectName": f"{names.database}.{names.table}",
                "tags": {"metaVersion": "1"},
            }
            if names.key:
                fields["tags"]["pk_uk_info"] = json.dumps({"PRIMARY": list(names.key)})
            if event.op == "truncate":
                fields |= {"operation": "DDL", "objectName": names.database, "fields": None}
                fields |= {"beforeImages": None, "afterImages": f"TRUNCATE TABLE {names.table}"}
            else:
                fields |= {
                    "operation": _OPERATIONS[event.op],
                    "fields": [{"name": name, "dataTypeNumber": _NUMBERS[name]} for name in event.columns],
                    "beforeImages": _image(event.before),
                    "afterImages": _image(event.after),
                }
            data = dts_records.encode(dts_records.record_fields(**fields))
            yield Written([told_whole(names, event)], data)


def _image(row: Row | None) -> list[dts_records.Value] | None:
    return None if row is None else [_value(name, value) for name, value in row.items()]


def _value(name: str, value: Any) -> dts_records.Value:
    if value is None:
        return dts_records.NULL
    match _NUMBERS[name]:
        case 3 | 8 as precision:
            return dts_records.value("Integer", precision=precision, value=str(value))
        case 246:
            return dts_records.value("Decimal", value=str(value), precision=10, scale=2)
        case 252:
            return dts_records.value("TextObject", type="text", value=value)
    return dts_records.value("Character", charset="utf8mb4", value=value.encode())
