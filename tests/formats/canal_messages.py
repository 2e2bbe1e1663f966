"""Canal messages for tests, made up."""

from __future__ import annotations

import json
from typing import Any

from captured import CapturedRecord

__all__ = ["message", "row", "sent", "without"]


def sent(value: bytes | None) -> CapturedRecord:
    """A record with this value."""
    return CapturedRecord("cdc.shop", 3, 42, 1763000000123, None, value, [])


def message(**fields: Any) -> CapturedRecord:
    """An insert of one order, as Canal writes it, with other fields where they are given."""
    whole = {
        "data": [{"id": "7", "total": "9061.0", "note": None}],
        "database": "shop",
        "es": 1763000000000,
        "gtid": "",
        "id": 19,
        "isDdl": False,
        "mysqlType": {"id": "bigint", "total": "decimal(10,2)", "note": "varchar(20)"},
        "old": None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": -5, "total": 3, "note": 12},
        "table": "orders",
        "ts": 1763000000123,
        "type": "INSERT",
    }
    return sent(json.dumps(whole | fields, ensure_ascii=False).encode())


def without(*names: str) -> CapturedRecord:
    whole = json.loads(message().value() or b"")
    return sent(json.dumps({name: value for name, value in whole.items() if name not in names}).encode())


def row(**columns: Any) -> CapturedRecord:
    return message(data=[{"id": "7", "total": "1.00", "note": None} | columns])
