"""Debezium records for tests, made up."""

from __future__ import annotations

import json
from typing import Any

from captured import CapturedRecord

from handlers import Change
from worker.formats.debezium.format import Debezium

__all__ = [
    "change_of",
    "connect",
    "create",
    "ddl",
    "definition",
    "envelope",
    "record",
    "row_of",
    "source",
    "with_schema",
]

TOPIC = "my.shop.orders"


def record(
    value: Any, key: Any = None, *, topic: str = TOPIC, headers: tuple[tuple[str, str], ...] = ()
) -> CapturedRecord:
    """Values and keys other than bytes are written as JSON."""
    return CapturedRecord(
        topic,
        3,
        42,
        1763000000999,
        key if isinstance(key, bytes | None) else _json(key),
        value if isinstance(value, bytes | None) else _json(value),
        [(name, text.encode()) for name, text in headers],
    )


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def source(**fields: Any) -> dict[str, Any]:
    """Of MySQL, with other fields where they are given."""
    return {
        "version": "3.5.0.Final",
        "connector": "mysql",
        "name": "my",
        "ts_ms": 1763000000000,
        "snapshot": "false",
        "db": "shop",
        "sequence": None,
        "table": "orders",
        "server_id": 8015,
        "gtid": "24DA167-0C0C-11E8-8442-00059A3C7B00:7",
        "file": "mysql-bin.000003",
        "pos": 484,
        "row": 0,
        "thread": 7,
        "query": None,
    } | fields


def envelope(op: str = "c", *, at: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A new order, as Debezium writes it without schemas, with other fields where they are given."""
    row = None if op in ("d", "t", "m") else {"id": 7, "note": "a"}
    return {
        "before": None,
        "after": row,
        "source": source(**at or {}),
        "transaction": None,
        "op": op,
        "ts_ms": 1763000000123,
    } | fields


def connect(type_: str, name: str | None = None, **parameters: str) -> dict[str, Any]:
    """The Connect schema of a column."""
    schema: dict[str, Any] = {"type": type_, "optional": True}
    if name is not None:
        prefix = "" if name.startswith("org.") else "io.debezium."
        schema |= {"name": prefix + name, "version": 1}
    return schema | ({"parameters": parameters} if parameters else {})


def with_schema(payload: dict[str, Any], columns: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The envelope as the JsonConverter writes it with `schemas.enable=true`."""
    row = {"type": "struct", "fields": [schema | {"field": name} for name, schema in columns.items()]}
    fields = [
        row | {"optional": True, "field": "before"},
        row | {"optional": True, "field": "after"},
        {"type": "struct", "fields": [], "name": "io.debezium.connector.mysql.Source", "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
    ]
    return {
        "schema": {"type": "struct", "fields": fields, "name": "my.shop.orders.Envelope"},
        "payload": payload,
    }


def definition(types: dict[str, Any], key: tuple[str, ...] = ("id",)) -> dict[str, Any]:
    """`table` of a table change. Types: name, or (name, length, scale), or the labels of an enum or set. The
    key is that of a table that has all its columns."""
    columns = []
    for column, type_ in types.items():
        name, length, scale, labels = type_, None, None, None
        if isinstance(type_, tuple):
            name, length, scale = (*type_, None)[:3]
        if isinstance(length, list):
            labels, length = [f"'{label}'" for label in length], 1
        told = {"name": column, "typeName": name, "typeExpression": name, "length": length, "scale": scale}
        columns.append(told | {"jdbcType": 0, "charsetName": None, "position": 1, "enumValues": labels})
    return {
        "defaultCharsetName": "utf8mb4",
        "primaryKeyColumnNames": list(key) if types.keys() >= set(key) else None,
        "columns": columns,
    }


def ddl(
    sql: str, *changes: dict[str, Any], at: dict[str, Any] | None = None, database: str = "shop"
) -> CapturedRecord:
    """A schema change. `changes`: `tableChanges`."""
    value = {
        "source": source(**{"pos": 400} | (at or {})),
        "ts_ms": 1763000000123,
        "databaseName": database,
        "schemaName": None,
        "ddl": sql,
        "tableChanges": list(changes),
    }
    return record(value, {"databaseName": database}, topic="my")


def create(
    types: dict[str, Any], *, at: dict[str, Any] | None = None, table: str = "orders"
) -> CapturedRecord:
    """CREATE TABLE of these types."""
    change = {"type": "CREATE", "id": f'"shop"."{table}"', "table": definition(types)}
    return ddl("CREATE TABLE t (...)", change, at=at)


def change_of(record: CapturedRecord, format_: Debezium | None = None) -> Change:
    """The record's one change."""
    changes: list[Change] = []
    (format_ or Debezium()).decode(record, changes)
    (change,) = changes
    return change


def row_of(record: CapturedRecord, format_: Debezium | None = None) -> dict[str, Any]:
    """The row after the record's one change, read in both ways: column by column, and by a decoder made for
    its shape."""
    format_ = format_ or Debezium()
    first = change_of(record, format_).after
    for _ in range(70):
        last = change_of(record, format_).after
    assert repr(last) == repr(first)
    assert first is not None
    return first
