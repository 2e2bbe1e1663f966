"""The same order of a shop as each tool would send it, padded to a size."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
from confluent_kafka import Message

from worker.formats.dts.schema import RECORD

__all__ = ["DEFINITIONS", "VALUES", "Encode", "message"]

Encode = Callable[[int, str], bytes]
"""(number of the order, padding) -> value"""

_MS = 1_795_219_014_629
_LABELS = ("new", "paid", "shipped", "cancelled")
_TYPES = {
    "id": "bigint",
    "customer_id": "int",
    "status": "enum('new','paid','shipped','cancelled')",
    "total": "decimal(12,2)",
    "vip": "tinyint(1)",
    "note": "varchar(1000)",
    "placed_at": "datetime(6)",
    "updated_at": "timestamp(3)",
    "meta": "json",
}
_SEPARATE = (",", ":")


def message(
    value: bytes, number: int, *, key: bytes | None = None, topic: str = "cdc.shop.orders"
) -> Message:
    """As the consumer hands it over."""
    return Message(topic=topic, partition=0, offset=number, key=key, value=value, timestamp=(1, _MS))


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=_SEPARATE).encode()


def _texts(number: int, padding: str) -> dict[str, str]:
    """The row as the server prints it."""
    return {
        "id": str(number),
        "customer_id": str(number % 1_000),
        "status": _LABELS[number % 4],
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
        "es": _MS,
        "gtid": "",
        "id": number,
        "isDdl": False,
        "mysqlType": _TYPES,
        "old": None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": dict.fromkeys(_TYPES, 12),
        "table": "orders",
        "ts": _MS,
        "type": "INSERT",
    }
    return _dump(fields)


def _connect_row(number: int, padding: str) -> dict[str, Any]:
    cents = number % 10_000 * 100 + number % 100
    return {
        "id": number,
        "customer_id": number % 1_000,
        "status": _LABELS[number % 4],
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
        "source": {
            "version": "3.5.0.Final",
            "connector": "mysql",
            "name": "my",
            "ts_ms": _MS,
            "snapshot": "false",
            "db": "shop",
            "table": "orders",
            "server_id": 8015,
            "gtid": None,
            "file": "mysql-bin.000001",
            "pos": 156_966 + number,
            "row": 0,
        },
        "transaction": None,
        "op": "c",
        "ts_ms": _MS,
    }


def _connect(type_: str, field: str, name: str | None = None, **parameters: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": type_, "optional": True, "field": field}
    if name is not None:
        schema |= {"name": name, "version": 1}
    return schema | ({"parameters": parameters} if parameters else {})


_COLUMNS = [
    {**_connect("int64", "id"), "optional": False},
    _connect("int32", "customer_id"),
    _connect("string", "status", "io.debezium.data.Enum", allowed=",".join(_LABELS)),
    _connect(
        "bytes",
        "total",
        "org.apache.kafka.connect.data.Decimal",
        scale="2",
        **{"connect.decimal.precision": "12"},
    ),
    _connect("int16", "vip"),
    _connect("string", "note"),
    _connect("int64", "placed_at", "io.debezium.time.MicroTimestamp"),
    _connect("string", "updated_at", "io.debezium.time.ZonedTimestamp"),
    _connect("string", "meta", "io.debezium.data.Json"),
]
_ROW = {"type": "struct", "fields": _COLUMNS, "optional": True, "name": "my.shop.orders.Value"}
_SOURCE = {
    "type": "struct",
    "fields": [
        *(
            _connect("string", name)
            for name in ("version", "connector", "name", "snapshot", "db", "table", "gtid")
        ),
        *(_connect("int64", name) for name in ("ts_ms", "server_id", "pos", "row")),
        _connect("string", "file"),
    ],
    "optional": False,
    "name": "io.debezium.connector.mysql.Source",
    "field": "source",
}
_SCHEMA = {
    "type": "struct",
    "fields": [{**_ROW, "field": "before"}, {**_ROW, "field": "after"}, _SOURCE, _connect("string", "op")],
    "optional": False,
    "name": "my.shop.orders.Envelope",
    "version": 2,
}


def _maxwell(number: int, padding: str) -> bytes:
    row = _connect_row(number, padding) | {
        "placed_at": f"2025-04-18 01:28:37.{number % 1_000_000:06}",
        "updated_at": f"2025-04-18 01:28:37.{number % 1_000:03}",
        "total": "TOTAL",
        "meta": {"n": number, "src": "web"},
    }
    head = {"database": "shop", "table": "orders", "type": "insert", "ts": _MS // 1000, "xid": number}
    place = {"position": f"mysql-bin.000001:{156_966 + number}", "primary_key_columns": ["id"], "data": row}
    return _dump(head | place).replace(b'"TOTAL"', f"{number % 10_000}.{number % 100:02}".encode())


_DTS_SCHEMA = fastavro.parse_schema(RECORD)
_DTS_NAME = "com.alibaba.dts.formats.avro."
_DTS_CODES = {"id": 8, "customer_id": 3, "status": 247, "total": 246, "vip": 1, "note": 253} | {
    "placed_at": 12,
    "updated_at": 7,
    "meta": 245,
}


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
        "sourceTimestamp": _MS // 1000,
        "sourcePosition": f"{156_966 + number}@1",
        "safeSourcePosition": "156966@1",
        "sourceTxid": "77",
        "source": {"sourceType": "MySQL", "version": "8.0.15"},
        "operation": "INSERT",
        "objectName": "shop.orders",
        "processTimestamps": None,
        "tags": {"pk_uk_info": '{"PRIMARY":["id"]}'},
        "fields": [{"name": name, "dataTypeNumber": code} for name, code in _DTS_CODES.items()],
        "beforeImages": None,
        "afterImages": images,
        "bornTimestamp": _MS,
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _DTS_SCHEMA, record)
    return out.getvalue()


VALUES: dict[str, Encode] = {
    "canal": _canal,
    "debezium": lambda number, padding: _dump(_envelope(number, padding)),
    "debezium, with schemas": lambda number, padding: _dump(
        {"schema": _SCHEMA, "payload": _envelope(number, padding)}
    ),
    "maxwell": _maxwell,
    "dts": _dts,
    "json": lambda number, padding: _dump(
        {"db": "shop", "tbl": "orders", "op": "c", "ts": _MS, "row": _connect_row(number, padding)}
    ),
}
"""Name -> encoder."""

_TABLE_CHANGE = {
    "type": "CREATE",
    "id": '"shop"."orders"',
    "table": {
        "primaryKeyColumnNames": ["id"],
        "columns": [
            {"name": "id", "typeName": "BIGINT"},
            {"name": "customer_id", "typeName": "INT"},
            {"name": "status", "typeName": "ENUM", "enumValues": [f"'{label}'" for label in _LABELS]},
            {"name": "total", "typeName": "DECIMAL", "length": 12, "scale": 2},
            {"name": "vip", "typeName": "TINYINT", "length": 1},
            {"name": "note", "typeName": "VARCHAR", "length": 1000, "charsetName": "utf8mb4"},
            {"name": "placed_at", "typeName": "DATETIME", "length": 6},
            {"name": "updated_at", "typeName": "TIMESTAMP", "length": 3},
            {"name": "meta", "typeName": "JSON"},
        ],
    },
}
_MAXWELL_COLUMNS = [
    {"type": "bigint", "name": "id", "signed": True},
    {"type": "int", "name": "customer_id", "signed": True},
    {"type": "enum", "name": "status", "enum-values": list(_LABELS)},
    {"type": "decimal", "name": "total"},
    {"type": "tinyint", "name": "vip", "signed": True},
    {"type": "varchar", "name": "note", "charset": "utf8mb4"},
    {"type": "datetime", "name": "placed_at", "column-length": 6},
    {"type": "timestamp", "name": "updated_at", "column-length": 3},
    {"type": "json", "name": "meta"},
]

DEFINITIONS: dict[str, bytes] = {
    "debezium": _dump(
        {
            "source": {**_envelope(0, "")["source"], "pos": 4},
            "ts_ms": _MS,
            "databaseName": "shop",
            "ddl": "CREATE TABLE orders (id bigint PRIMARY KEY)",
            "tableChanges": [_TABLE_CHANGE],
        }
    ),
    "maxwell": _dump(
        {
            "type": "table-create",
            "database": "shop",
            "table": "orders",
            "def": {
                "database": "shop",
                "charset": "utf8mb4",
                "table": "orders",
                "columns": _MAXWELL_COLUMNS,
                "primary-key": ["id"],
            },
            "ts": _MS,
            "sql": "CREATE TABLE orders (id bigint PRIMARY KEY)",
            "position": "mysql-bin.000001:4",
        }
    ),
}
"""Name -> the record of a DDL topic that tells the table's types."""
