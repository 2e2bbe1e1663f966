"""One order of a shop in each tool's format, padded to a size."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import fastavro
from confluent_kafka import Message

from benchmarks.decode_table import CONNECT_SCHEMA, DTS_CODES, LABELS, SOURCE, TIME_MS, TYPES, dump
from worker.formats.dts.schema import RECORD

__all__ = ["AVRO_SCHEMA", "VALUES", "Encode", "message"]

Encode = Callable[[int, str], bytes]
"""(number of the order, padding) -> value"""


def message(
    value: bytes, number: int, *, key: bytes | None = None, topic: str = "cdc.shop.orders"
) -> Message:
    """A message as the consumer returns it."""
    return Message(topic=topic, partition=0, offset=number, key=key, value=value, timestamp=(1, TIME_MS))


def _texts(number: int, padding: str) -> dict[str, str]:
    """The row as MySQL prints it."""
    return {
        "id": str(number),
        "customer_id": str(number % 1_000),
        "status": LABELS[number % 4],
        "total": f"{number % 10_000}.{number % 100:02}",
        "vip": str(number % 2),
        "note": f"note {padding}",
        "placed_at": f"2025-04-18 01:28:37.{number % 1_000_000:06}",
        "updated_at": f"2025-04-18 01:28:37.{number % 1_000:03}",
        "meta": f'{{"n": {number}, "src": "web"}}',
    }


def _canal(number: int, padding: str) -> bytes:
    row = _texts(number, padding) | {"status": str(number % 4 + 1)}
    fields = {
        "data": [row],
        "database": "shop",
        "es": TIME_MS,
        "gtid": "",
        "id": number,
        "isDdl": False,
        "mysqlType": TYPES,
        "old": None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": dict.fromkeys(TYPES, 12),
        "table": "orders",
        "ts": TIME_MS,
        "type": "INSERT",
    }
    return dump(fields)


def _connect_row(number: int, padding: str) -> dict[str, Any]:
    cents = number % 10_000 * 100 + number % 100
    return {
        "id": number,
        "customer_id": number % 1_000,
        "status": LABELS[number % 4],
        "total": base64.b64encode(cents.to_bytes(4, "big", signed=True)).decode(),
        "vip": number % 2,
        "note": f"note {padding}",
        "placed_at": 1_744_939_717_000_000 + number % 1_000_000,
        "updated_at": f"2025-04-18T01:28:37.{number % 1_000:03}Z",
        "meta": f'{{"n":{number},"src":"web"}}',
    }


def _envelope(number: int, padding: str) -> dict[str, Any]:
    return {
        "before": None,
        "after": _connect_row(number, padding),
        "source": SOURCE | {"pos": 156_966 + number},
        "transaction": None,
        "op": "c",
        "ts_ms": TIME_MS,
    }


def _maxwell(number: int, padding: str) -> bytes:
    row = _connect_row(number, padding) | {
        "placed_at": f"2025-04-18 01:28:37.{number % 1_000_000:06}",
        "updated_at": f"2025-04-18 01:28:37.{number % 1_000:03}",
        "total": "TOTAL",
        "meta": {"n": number, "src": "web"},
    }
    head = {"database": "shop", "table": "orders", "type": "insert", "ts": TIME_MS // 1000, "xid": number}
    place = {"position": f"mysql-bin.000001:{156_966 + number}", "primary_key_columns": ["id"], "data": row}
    return dump(head | place).replace(b'"TOTAL"', f"{number % 10_000}.{number % 100:02}".encode())


_DTS_SCHEMA = fastavro.parse_schema(RECORD)
_DTS_NAME = "com.alibaba.dts.formats.avro."


def _dts(number: int, padding: str) -> bytes:
    def value(kind: str, **fields: Any) -> tuple[str, dict[str, Any]]:
        return _DTS_NAME + kind, fields

    def text(content: str) -> tuple[str, dict[str, Any]]:
        return value("Character", charset="utf8mb4", value=content.encode())

    texts = _texts(number, padding)
    when = {"year": 2025, "month": 4, "day": 18, "hour": 1, "minute": 28, "second": 37}
    images = [
        value("Integer", precision=8, value=texts["id"]),
        value("Integer", precision=4, value=texts["customer_id"]),
        value("TextObject", type="enum", value=texts["status"]),
        value("Decimal", value=texts["total"], precision=12, scale=2),
        value("Integer", precision=1, value=texts["vip"]),
        text(texts["note"]),
        value("DateTime", **when, millis=number % 1_000),
        value("Timestamp", timestamp=1_744_939_717, millis=number % 1_000),
        value("TextObject", type="json", value=texts["meta"]),
    ]
    record = {
        "version": 0,
        "id": number,
        "sourceTimestamp": TIME_MS // 1000,
        "sourcePosition": f"{156_966 + number}@1",
        "safeSourcePosition": "156966@1",
        "sourceTxid": "77",
        "source": {"sourceType": "MySQL", "version": "8.0.15"},
        "operation": "INSERT",
        "objectName": "shop.orders",
        "processTimestamps": None,
        "tags": {"pk_uk_info": '{"PRIMARY":["id"]}'},
        "fields": [{"name": name, "dataTypeNumber": code} for name, code in DTS_CODES.items()],
        "beforeImages": None,
        "afterImages": images,
        "bornTimestamp": TIME_MS,
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _DTS_SCHEMA, record)
    return out.getvalue()


_AVRO_TYPES = {"int64": "long", "int32": "int", "int16": "int"}


def _avro_type(told: dict[str, Any], named: set[str]) -> Any:
    """The Avro schema that Kafka Connect's converters derive from Connect's schema."""
    kind = _AVRO_TYPES.get(told["type"], told["type"])
    made: Any = {"type": kind, "connect.name": told.get("name"), "connect.type": told["type"]}
    made["connect.parameters"] = told.get("parameters", {})
    if kind == "struct":
        name = told["name"]
        fields = None if name in named else told["fields"]
        named.add(name)
        made |= {"type": "record", "name": name}
        made = name if fields is None else made | {"fields": [_avro_field(each, named) for each in fields]}
    return ["null", made] if told["optional"] else made


def _avro_field(told: dict[str, Any], named: set[str]) -> dict[str, Any]:
    return {"name": told["field"], "type": _avro_type(told, named)}


AVRO_SCHEMA = _avro_type(CONNECT_SCHEMA, set())
_AVRO_PARSED = fastavro.parse_schema(AVRO_SCHEMA)


def _avro(number: int, padding: str) -> bytes:
    """The record that a converter with a schema registry writes: the schema's id, then the row."""
    out, value = io.BytesIO(), _envelope(number, padding)
    value["after"]["total"] = base64.b64decode(value["after"]["total"])
    fastavro.schemaless_writer(out, _AVRO_PARSED, value)
    return b"\0\0\0\0\1" + out.getvalue()


VALUES: dict[str, Encode] = {
    "canal": _canal,
    "debezium": lambda number, padding: dump(_envelope(number, padding)),
    "debezium, with schemas": lambda number, padding: dump(
        {"schema": CONNECT_SCHEMA, "payload": _envelope(number, padding)}
    ),
    "debezium, avro": _avro,
    "maxwell": _maxwell,
    "dts": _dts,
    "json": lambda number, padding: dump(
        {"db": "shop", "tbl": "orders", "op": "c", "ts": TIME_MS, "row": _connect_row(number, padding)}
    ),
}
"""Name -> encoder."""
