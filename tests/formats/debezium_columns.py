"""Single columns of Debezium's rows: what comes out of a value with this schema, of this type."""

from __future__ import annotations

import base64
from typing import Any

from debezium_messages import create, envelope, record, row_of, with_schema

from worker.formats.debezium.format import Debezium

__all__ = ["DECIMAL", "POSTGRESQL", "WKB", "assert_same", "b64", "value_of"]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
WKB = bytes.fromhex("0101000000000000000000f03f0000000000000040")
POSTGRESQL = {"connector": "postgresql", "schema": "public", "file": None, "pos": None, "lsn": 24_023_128}


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def value_of(
    value: Any, schema: dict[str, Any] | None = None, *, at: dict[str, Any] | None = None, **known: Any
) -> Any:
    """The value of a column as it comes out, with this schema, and this type in the table's history."""
    format_ = Debezium()
    if known:
        format_.learn(create({"c": known["type"]}))
    message = envelope(after={"c": value}, at=at)
    return row_of(record(message if schema is None else with_schema(message, {"c": schema})), format_)["c"]


def assert_same(found: Any, expected: Any) -> None:
    """Of one type, and of the same digits."""
    assert type(found) is type(expected)
    assert repr(found) == repr(expected)
