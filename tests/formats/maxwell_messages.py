"""Maxwell records for tests: made up, and captured."""

from __future__ import annotations

import json
from typing import Any

from captured import CapturedRecord, records

from handlers import Change
from worker.formats.maxwell.format import Maxwell

__all__ = [
    "DDL_TOPIC",
    "ORDERS",
    "PRACTICE",
    "after",
    "captured",
    "column",
    "ddl",
    "decode",
    "definition",
    "knowing",
    "raw",
    "row",
    "statement",
]

DDL_TOPIC = "maxwell_ddl"


def raw(
    value: bytes | None, key: bytes | None = None, *, offset: int = 42, topic: str = "maxwell"
) -> CapturedRecord:
    return CapturedRecord(topic, 3, offset, 1763000000123, key, value, [])


def row(key: str | None = None, **fields: Any) -> CapturedRecord:
    """An insert of one order as Maxwell writes it by default, with other fields where they are given."""
    whole = {
        "database": "shop",
        "table": "orders",
        "type": "insert",
        "ts": 1763000000,
        "xid": 77,
        "commit": True,
        "position": "mysql-bin.000002:500",
        "primary_key_columns": ["id"],
        "data": {"id": 7, "total": 9061.5, "note": None},
    }
    value = {name: value for name, value in (whole | fields).items() if value is not ...}
    return raw(json.dumps(value, ensure_ascii=False).encode(), None if key is None else key.encode())


def column(name: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **{key.replace("_", "-"): value for key, value in more.items()}}


def definition(
    table: str, *columns: dict[str, Any], database: str = "shop", key: tuple[str, ...] = ("id",)
) -> Any:
    """`def` or `old` of a DDL record."""
    return {
        "database": database,
        "charset": "utf8mb4",
        "table": table,
        "columns": list(columns),
        "primary-key": list(key),
    }


def ddl(
    type_: str, sql: str, *, at: str | None = "mysql-bin.000001:4", offset: int = 0, **fields: Any
) -> CapturedRecord:
    """A record of the DDL topic. `after` is its `def`, `before` its `old`."""
    named = fields.get("before") or fields.get("after") or {"database": "shop", "table": "orders"}
    whole = {
        "type": type_,
        "database": named["database"],
        "table": named["table"],
        "old": fields.pop("before", ...),
        "def": fields.pop("after", ...),
        "ts": 1763000000999,
        "sql": sql,
        "position": ... if at is None else at,
        **fields,
    }
    value = {name: value for name, value in whole.items() if value is not ...}
    return raw(json.dumps(value, ensure_ascii=False).encode(), b"a-bare-uuid", offset=offset, topic=DDL_TOPIC)


def statement(
    sql: str, *columns: dict[str, Any], table: str = "orders", at: str = "mysql-bin.000001:4"
) -> CapturedRecord:
    """CREATE TABLE, with the columns that Maxwell made of it."""
    return ddl("table-create", sql, at=at, after=definition(table, *columns))


def knowing(*statements: CapturedRecord) -> Maxwell:
    """A reader that learned these DDL records."""
    format_ = Maxwell()
    for record in statements:
        format_.learn(record)
    return format_


def captured() -> list[CapturedRecord]:
    """What real Maxwell wrote, in the order of the source's log: rows of a bootstrap after what was written
    to their partition before them."""
    placed = []
    latest: dict[tuple[str, int], tuple[int, ...]] = {}
    format_ = Maxwell()
    for record in records("maxwell"):
        place = format_.log_position(record)
        partition = (record.topic(), record.partition())
        order = (place.order if place is not None else ()) or latest.get(partition, ())
        latest[partition] = order
        placed.append((order, record))
    return [record for _, record in sorted(placed, key=lambda item: item[0])]


PRACTICE = 70  # more records of one shape than a reader of its own takes
ORDERS = statement(
    "CREATE TABLE orders (id bigint PRIMARY KEY, total decimal(10,2), note varchar(20))",
    column("id", "bigint", signed=True),
    column("total", "decimal"),
    column("note", "varchar", charset="utf8mb4"),
)


def decode(record: CapturedRecord, format_: Maxwell | None = None) -> list[Change]:
    changes: list[Change] = []
    (format_ or Maxwell()).decode(record, changes)
    return changes


def after(record: CapturedRecord, format_: Maxwell | None = None) -> Any:
    (change,) = decode(record, format_)
    return change.after
