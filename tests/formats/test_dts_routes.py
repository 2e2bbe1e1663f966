"""Where DTS records belong, and what is said of those that belong nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from captured import CapturedRecord
from dts_records import encode, record_fields, sent, value

from handlers import Change
from worker.formats.decoding import source_time
from worker.formats.dts.format import DTS
from worker.formats.interface import Skip, UndecodableRecord


def decode(item: CapturedRecord) -> list[Change]:
    changes: list[Change] = []
    DTS().decode(item, changes)
    return changes


def route(**fields: Any) -> tuple[str, str, bool] | None:
    """Where a record goes by its first fields alone; None: nowhere."""
    found = DTS().route(encode(record_fields(**fields)))
    return (found.database, found.table, found.alone) if found.table else None


@pytest.mark.parametrize("operation", ["INSERT", "UPDATE", "DELETE"])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("shop.orders", ("shop", "orders")),
        ("shop.order\\u002Eitems", ("shop", "order.items")),
        ("a\\u002Eb\\u002E.\\u002Ec", ("a.b.", ".c")),
        ("客户.订单", ("客户", "订单")),
        ("base.public.orders", ("public", "orders")),
        ("shop." + "x" * 64, ("shop", "x" * 64)),
    ],
)
def test_rows_belong_to_the_table_of_their_object_name(
    operation: str, name: str, place: tuple[str, str]
) -> None:
    assert route(operation=operation, objectName=name) == (*place, False)
    found = DTS().explain(sent(operation=operation, objectName=name))
    assert not isinstance(found, Skip)
    assert (found.database, found.table, found.alone) == (*place, False)


@pytest.mark.parametrize(
    ("name", "sql", "place"),
    [
        ("shop.orders", "whatever", ("shop", "orders")),
        ("shop", "ALTER TABLE orders ADD x int", ("shop", "orders")),
        ("shop", "ALTER TABLE crm.tags ADD x int", ("crm", "tags")),
        (None, "ALTER TABLE crm.tags ADD x int", ("crm", "tags")),
    ],
)
def test_a_statement_belongs_to_the_table_that_it_names_alone(
    name: str | None, sql: str, place: tuple[str, str]
) -> None:
    fields = {"operation": "DDL", "objectName": name, "fields": None, "afterImages": sql}
    assert route(**fields) == (*place, True)
    found = DTS().explain(sent(**fields))
    assert not isinstance(found, Skip)
    assert (found.database, found.table, found.alone) == (*place, True)


def test_statements_with_one_object_name_go_each_to_its_table() -> None:
    format_ = DTS()
    for table in ("orders", "tags", "orders"):
        fields = {"operation": "DDL", "objectName": "shop", "afterImages": f"DROP TABLE {table}"}
        assert format_.route(encode(record_fields(**fields))).table == table


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("BEGIN", "transaction"), ("COMMIT", "transaction"), ("ROLLBACK", "rollback"), ("ABORT", "abort"),
        ("HEARTBEAT", "heartbeat"), ("CHECKPOINT", "checkpoint"), ("COMMAND", "command"), ("FILL", "fill"),
        ("FINISH", "finish"), ("CONTROL", "control"), ("RDB", "rdb"), ("NOOP", "noop"), ("INIT", "init"),
    ],
)  # fmt: skip
def test_a_record_that_is_no_change_is_skipped_with_its_reason(operation: str, reason: str) -> None:
    for name in (None, "shop", "shop.orders"):
        fields = {"operation": operation, "objectName": name}
        assert route(**fields) is None
        assert DTS().explain(sent(**fields)) == Skip(reason)
        assert decode(sent(**fields)) == []


@pytest.mark.parametrize(
    "sql", ["CREATE DATABASE shop", "drop database `shop`", "CREATE VIEW v AS SELECT 1", ""]
)
def test_a_statement_about_no_table_is_skipped(sql: str) -> None:
    fields = {"operation": "DDL", "objectName": "shop", "fields": None, "afterImages": sql}
    assert route(**fields) is None
    assert DTS().explain(sent(**fields)) == Skip("database_ddl")


def shortest(**fields: Any) -> bytes:
    """A record with as little in it as there can be."""
    nothing = {
        "sourcePosition": "",
        "safeSourcePosition": "",
        "sourceTxid": "",
        "id": 1,
        "sourceTimestamp": 60,
    }
    source = {"sourceType": "MySQL", "version": ""}
    row = {
        "fields": [{"name": "i", "dataTypeNumber": 3}],
        "afterImages": [value("Integer", precision=4, value="7")],
    }
    whole = record_fields(**nothing, source=source, tags={}, objectName="a.b", **row) | fields
    return encode(whole, before_born_timestamp=True)


def test_a_record_as_short_as_noise_that_holds_a_change_is_no_noise() -> None:
    data = shortest()
    assert len(data) <= 48
    found = DTS().route(data)
    assert (found.database, found.table) == ("a", "b")
    (change,) = decode(sent(data))
    assert (change.op, change.after) == ("insert", {"i": 7})
    ddl = shortest(operation="DDL", fields=None, objectName="a", afterImages="DROP TABLE b")
    assert len(ddl) <= 48
    assert DTS().route(ddl) == DTS().explain(sent(ddl))
    assert [change.sql for change in decode(sent(ddl))] == ["DROP TABLE b"]


@pytest.mark.parametrize(
    "data", [b"", b"\0", bytes(48), b"\xff" * 48, b"noise", b'{"a": 1}', shortest()[:-3]]
)
def test_short_values_that_hold_no_change_are_noise(data: bytes) -> None:
    assert len(data) <= 48
    format_ = DTS()
    assert not format_.route(data).table
    assert format_.explain(sent(data)) == Skip("noise")


def test_a_record_without_a_value_is_noise() -> None:
    nothing = CapturedRecord("dts", 0, 0, 0, None, None, [])
    assert DTS().explain(nothing) == Skip("noise")
    assert decode(nothing) == []


def test_the_time_of_a_record_is_that_of_its_source() -> None:
    assert source_time(DTS(), sent()) == 1_763_000_000_000
    assert source_time(DTS(), sent(b"broken")) is None


JSON = b'{"database": "shop", "table": "orders", "type": "INSERT", "data": [{"id": "7"}]}'


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (JSON, "JSON: does this topic have another format"),
        (b"\xff" * 60, r"is cut off after 60 bytes \(it begins with ff ff"),
        (encode(record_fields(objectName="x" * 60))[:60], "is cut off after 60 bytes"),
        (b"\0" * 60, r"INSERT without a table \(`objectName` is ''\)"),
        (encode(record_fields(objectName="shop")), r"INSERT without a table \(`objectName` is 'shop'\)"),
        (encode(record_fields(objectName="a.b.c.d")), "neither db, db.table nor db.schema.table"),
        (encode(record_fields(objectName="a..b")), "neither db, db.table nor db.schema.table"),
        (encode(record_fields(operation="DDL", objectName="shop", afterImages=None)), "without a statement"),
    ],
)
def test_what_routes_nowhere_says_what_was_found(data: bytes, said: str) -> None:
    assert not DTS().route(data).table
    with pytest.raises(UndecodableRecord, match=said):
        DTS().explain(sent(data))
