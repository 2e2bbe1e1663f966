"""The definition of a shop's table of orders in each tool's format."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["CONNECT_SCHEMA", "DEFINITIONS", "DTS_CODES", "LABELS", "SOURCE", "TIME_MS", "TYPES", "dump"]

TIME_MS = 1_795_219_014_629
LABELS = ("new", "paid", "shipped", "cancelled")
TYPES = {
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
SOURCE = {
    "version": "3.5.0.Final",
    "connector": "mysql",
    "name": "my",
    "ts_ms": TIME_MS,
    "snapshot": "false",
    "db": "shop",
    "table": "orders",
    "server_id": 8015,
    "gtid": None,
    "file": "mysql-bin.000001",
    "pos": 4,
    "row": 0,
}
"""Debezium's `source` of the table's definition. Each record has its own `pos`."""


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _connect(type_: str, field: str, name: str | None = None, **parameters: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": type_, "optional": True, "field": field}
    if name is not None:
        schema |= {"name": name, "version": 1}
    return schema | ({"parameters": parameters} if parameters else {})


_COLUMNS = [
    {**_connect("int64", "id"), "optional": False},
    _connect("int32", "customer_id"),
    _connect("string", "status", "io.debezium.data.Enum", allowed=",".join(LABELS)),
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
_SOURCE_SCHEMA = {
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
CONNECT_SCHEMA = {
    "type": "struct",
    "fields": [
        {**_ROW, "field": "before"},
        {**_ROW, "field": "after"},
        _SOURCE_SCHEMA,
        _connect("string", "op"),
    ],
    "optional": False,
    "name": "my.shop.orders.Envelope",
    "version": 2,
}
DTS_CODES = {"id": 8, "customer_id": 3, "status": 247, "total": 246, "vip": 1, "note": 253} | {
    "placed_at": 12,
    "updated_at": 7,
    "meta": 245,
}

_TABLE_CHANGE = {
    "type": "CREATE",
    "id": '"shop"."orders"',
    "table": {
        "primaryKeyColumnNames": ["id"],
        "columns": [
            {"name": "id", "typeName": "BIGINT"},
            {"name": "customer_id", "typeName": "INT"},
            {"name": "status", "typeName": "ENUM", "enumValues": [f"'{label}'" for label in LABELS]},
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
    {"type": "enum", "name": "status", "enum-values": list(LABELS)},
    {"type": "decimal", "name": "total"},
    {"type": "tinyint", "name": "vip", "signed": True},
    {"type": "varchar", "name": "note", "charset": "utf8mb4"},
    {"type": "datetime", "name": "placed_at", "column-length": 6},
    {"type": "timestamp", "name": "updated_at", "column-length": 3},
    {"type": "json", "name": "meta"},
]

DEFINITIONS: dict[str, bytes] = {
    "debezium": dump(
        {
            "source": SOURCE,
            "ts_ms": TIME_MS,
            "databaseName": "shop",
            "ddl": "CREATE TABLE orders (id bigint PRIMARY KEY)",
            "tableChanges": [_TABLE_CHANGE],
        }
    ),
    "maxwell": dump(
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
            "ts": TIME_MS,
            "sql": "CREATE TABLE orders (id bigint PRIMARY KEY)",
            "position": "mysql-bin.000001:4",
        }
    ),
}
"""Name -> the DDL topic's record that contains the table's types."""
