"""Canal messages for tests, made up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Sent", "message", "row", "without"]


@dataclass
class Sent:
    """A record with this value."""

    bytes: bytes | None
    at: int = 42

    def value(self) -> bytes | None:
        return self.bytes

    def key(self) -> bytes | None:
        return None

    def headers(self) -> None:
        return None

    def topic(self) -> str:
        return "cdc.shop"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 1763000000123

    def __len__(self) -> int:
        return len(self.bytes or b"")


def message(**fields: Any) -> Sent:
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
    return Sent(json.dumps(whole | fields, ensure_ascii=False).encode())


def without(*names: str) -> Sent:
    whole = json.loads(message().bytes or b"")
    return Sent(json.dumps({name: value for name, value in whole.items() if name not in names}).encode())


def row(**columns: Any) -> Sent:
    return message(data=[{"id": "7", "total": "1.00", "note": None} | columns])
