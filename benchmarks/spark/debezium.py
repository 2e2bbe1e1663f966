"""The load as Debezium's records: JSON without schemas, from MySQL, with decimals as text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from benchmarks.spark.load import COLUMNS, DATABASE, Record, table_name

__all__ = ["RECORDS", "debezium"]

RECORDS: dict[str, Any] = {
    "format": "debezium",
    "debezium": {"decimals": "string", "columns": {f"{DATABASE}.*": COLUMNS}},
}
"""binlane's sections about these records."""

_OPERATIONS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
_SOURCE = {
    "version": "3.5.0.Final",
    "connector": "mysql",
    "name": "my",
    "snapshot": "false",
    "db": DATABASE,
    "sequence": None,
    "server_id": 8015,
    "gtid": None,
    "file": "mysql-bin.000001",
    "row": 0,
    "thread": 12,
    "query": None,
}
_NUMBERS = ("id", "qty", "n")


def debezium(record: Record) -> tuple[bytes, bytes]:
    """Return the key and the value of a record of the load."""
    message = json.loads(record.value)
    [row] = message["data"]
    kind = message["type"]
    before = row | message["old"][0] if kind == "UPDATE" else row
    value = {
        "before": None if kind == "INSERT" else _typed(before),
        "after": None if kind == "DELETE" else _typed(row),
        "source": _SOURCE
        | {"ts_ms": message["es"], "table": table_name(record.table), "pos": 4 + 600 * record.number},
        "transaction": None,
        "op": _OPERATIONS[kind],
        "ts_ms": message["ts"],
    }
    return _dump({"id": int(row["id"])}), _dump(value)


def _typed(row: dict[str, str]) -> dict[str, Any]:
    """The row as Debezium writes it: times of datetime in milliseconds."""
    at = datetime.fromisoformat(row["at"]).replace(tzinfo=UTC)
    return {**row, **{name: int(row[name]) for name in _NUMBERS}, "at": int(at.timestamp() * 1000)}


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
