"""The shop's stream: what Canal would send, and what is true at its end."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import pytest
from captured import CapturedRecord, records

from handlers import Change
from worker.demo.shop_changes import Shop
from worker.demo.shop_source import Message
from worker.demo.shop_tables import DATABASE
from worker.formats.canal.format import Canal
from worker.formats.interface import Skip


def record(number: int, text: bytes) -> CapturedRecord:
    """A Kafka message as formats read it."""
    return CapturedRecord("cdc", 0, number, 0, None, text, [])


def played(changes: int = 4_000, seed: int = 7) -> tuple[Shop, list[Message]]:
    clock = itertools.count(1_795_000_000_000, 13)
    shop = Shop(changes, seed=seed, clock=lambda: next(clock))
    return shop, list(shop.messages())


@pytest.fixture(scope="module")
def whole() -> tuple[Shop, list[Message]]:
    return played(50_000)


def decoded(messages: list[Message]) -> dict[str, list[Change]]:
    canal, changes = Canal(), dict[str, list[Change]]()
    for number, message in enumerate(messages):
        into: list[Change] = []
        canal.decode(record(number, message.value), into)
        changes.setdefault(message.table, []).extend(into)
    return changes


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert played()[1] == played()[1]


def test_another_seed_gives_another_day() -> None:
    assert played(seed=8)[1] != played()[1]


def altered(statement: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row as an ALTER TABLE of the shop leaves it."""
    if "ADD COLUMN" in statement:
        return {**row, "tier": "silver"}
    if "RENAME COLUMN" in statement:
        return {"name" if column == "title" else column: value for column, value in row.items()}
    return row


def replayed(changes: list[Change], key: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows that the changes leave, each step checked against the one before."""
    rows: dict[Any, dict[str, Any]] = {}

    def key_of(row: dict[str, Any], change: Change) -> Any:
        return tuple(row[column] for column in key) if key else change.offset

    for change in changes:
        if change.op == "truncate":
            rows.clear()
        elif change.op == "ddl":
            rows = {place: altered(change.sql or "", row) for place, row in rows.items()}
        else:
            assert change.key_columns == (key or None)
            if change.before is not None:
                assert rows.pop(key_of(change.before, change)) == change.before
            if change.after is not None:
                assert key_of(change.after, change) not in rows
                rows[key_of(change.after, change)] = change.after
    return list(rows.values())


def test_replaying_the_decoded_stream_gives_the_rows_at_the_end(whole: tuple[Shop, list[Message]]) -> None:
    shop, messages = whole
    changes = decoded(messages)
    for name, table in shop.tables.items():
        assert replayed(changes[name], table.key) == list(table.rows.values()), name


def test_the_history_tells_the_operation_of_every_change(whole: tuple[Shop, list[Message]]) -> None:
    shop, messages = whole
    for name, changes in decoded(messages).items():
        if name:
            assert [change.op for change in changes] == shop.tables[name].history


def test_a_day_has_everything_that_a_source_does_to_a_table(whole: tuple[Shop, list[Message]]) -> None:
    shop, messages = whole
    ops = Counter((name, op) for name, table in shop.tables.items() for op in table.history)
    changes = decoded(messages)
    of_rows = ("insert", "update", "delete")
    assert shop.changes == sum(change.op in of_rows for own in changes.values() for change in own)
    assert 50_000 <= shop.changes < 50_100
    assert len(shop.tables) == 10
    assert shop.tables["order_items"].key == ("order_id", "line")
    assert shop.tables["audit_log"].key == ()
    for name in ("order_items", "addresses"):
        assert ops[name, "insert"] > ops[name, "delete"] > 100
    assert ops["promotions", "truncate"] == 1
    assert {name for name, op in ops if op == "ddl"} == {"customers", "products", "shipments"}
    moved = [
        name for name, rows in changes.items() for gone, come in itertools.pairwise(rows)
        if (gone.op, come.op) == ("delete", "insert") and gone.offset == come.offset and gone.key != come.key
    ]  # fmt: skip
    assert Counter(moved).keys() == {"shipments", "promotions"}
    several = {name for name, rows in changes.items() if any(change.index for change in rows)}
    assert several >= {"order_items", "products", "stock", "addresses"}
    load = Counter(dict[str, int]((name, len(table.history)) for name, table in shop.tables.items()))
    assert sum(load[name] for name in ("order_items", "stock")) > 0.5 * shop.changes
    assert min(load.values()) < 0.001 * shop.changes


def around_ddl(table: str) -> tuple[list[Change], str | None, list[Change]]:
    """The changes of a table before its statement, the statement, and those after it."""
    changes = decoded(played()[1])[table]
    [place] = [number for number, change in enumerate(changes) if change.op == "ddl"]
    return changes[:place], changes[place].sql, changes[place + 1 :]


def test_a_column_is_added_between_rows_that_lack_it_and_rows_that_have_it() -> None:
    before, statement, after = around_ddl("customers")
    assert statement == (
        "ALTER TABLE customers ADD COLUMN tier enum('silver','gold','platinum') "
        "NOT NULL DEFAULT 'silver' AFTER vip"
    )
    assert not any("tier" in (change.after or {}) for change in before)
    assert all(list(change.after or {})[5:8] == ["vip", "tier", "balance"] for change in after)
    assert {(change.after or {})["tier"] for change in after} == {"silver", "gold", "platinum"}


def test_a_column_is_renamed_between_rows_of_the_old_and_rows_of_the_new_name() -> None:
    before, statement, after = around_ddl("products")
    assert statement == "ALTER TABLE products RENAME COLUMN title TO name"
    assert all(list(change.after or {})[2] == "title" for change in before)
    assert after
    assert all(list(change.after or {})[2] == "name" for change in after)


def test_a_column_is_widened_before_values_that_need_it() -> None:
    before, statement, after = around_ddl("shipments")
    assert statement == "ALTER TABLE shipments MODIFY COLUMN parcels smallint unsigned"
    assert max((change.after or change.before or {})["parcels"] for change in before) < 256
    assert max((change.after or change.before or {})["parcels"] for change in after) > 32_767


def test_a_statement_about_the_database_has_no_table() -> None:
    first = played()[1][0]
    assert first.table == ""
    assert Canal().explain(record(0, first.value)) == Skip("database_ddl")


def test_messages_are_shaped_as_canal_shapes_them() -> None:
    recorded = [json.loads(each.value() or b"") for each in records("canal")]
    ours = [json.loads(message.value) for message in played()[1]]
    shapes = {shape(message) for message in recorded}
    for message in ours:
        assert shape(message) in shapes
        assert message["database"] == DATABASE
    known: dict[str, set[int]] = {}
    for message in recorded:
        for column, mysql_type in (message["mysqlType"] or {}).items():
            known.setdefault(kind(mysql_type), set()).add(message["sqlType"][column])
    for message in ours:
        for column, mysql_type in (message["mysqlType"] or {}).items():
            assert message["sqlType"][column] in known[kind(mysql_type)], mysql_type


def shape(message: dict[str, Any]) -> str:
    """A message without its contents: field names in order, and what kind of value each has."""
    kinds = {}
    for field, value in message.items():
        kinds[field] = type(value).__name__
        if field == "data" and value:
            kinds[field] += str(
                {type(text).__name__ for row in value for text in row.values()} <= {"str", "NoneType"}
            )
        if field == "old" and value:
            kinds[field] += str(len(value) == len(message["data"]))
        if field in ("mysqlType", "sqlType") and value:
            kinds[field] += str(list(value) == list(message["data"][0]))
    return f"{message['type']} {kinds}"


def kind(mysql_type: str) -> str:
    return mysql_type.partition("(")[0] + (" unsigned" if "unsigned" in mysql_type else "")
