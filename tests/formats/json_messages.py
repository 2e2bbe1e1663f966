"""Records of the format json for tests."""

from __future__ import annotations

import json
from typing import Any

from captured import CapturedRecord

from handlers import Change
from worker.formats.own_json.format import Json
from worker.formats.own_json.layout import JsonLayout

__all__ = ["decode", "reader", "record"]


def record(
    value: Any, key: Any = None, *, topic: str = "cdc.shop.orders", headers: dict[str, str] | None = None
) -> CapturedRecord:
    """`value` and `key` are bytes, None, or written as JSON."""
    named = [(name, text.encode()) for name, text in (headers or {}).items()]
    return CapturedRecord(topic, 3, 42, 1763000000123, _bytes(key), _bytes(value), named)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, ensure_ascii=False).encode()


def reader(**layout: Any) -> Json:
    """Of records whose database and table are constants, unless the layout says otherwise."""
    return Json(JsonLayout.model_validate({"database": "=shop", "table": "=orders", **layout}))


def decode(one: CapturedRecord, **layout: Any) -> list[Change]:
    changes: list[Change] = []
    reader(**layout).decode(one, changes)
    return changes
