"""Statements whose record names a table without a rule, or one with other handlers."""

from __future__ import annotations

from typing import cast

import pytest
from building import record
from confluent_kafka import Message
from dts_records import encode, record_fields
from row_building import Routed, rows, statement
from structlog.testing import capture_logs

from offsets.restore import Start
from offsets.types import TopicPartition
from worker.formats.interface import Record
from worker.units.assigned_partition import Assignment


@pytest.mark.parametrize(
    ("sql", "named", "parts"),
    [
        ("RENAME TABLE orders TO old", "old", ["shop.orders"]),
        ("ALTER TABLE orders RENAME TO old", "old", ["shop.orders"]),
        ("RENAME TABLE orders TO old, next TO orders", "old", ["shop.orders"]),
        ("RENAME TABLE orders TO old, other TO orders", "old", ["shop.orders", "shop.other"]),
        ("RENAME TABLE ORDERS TO OLD", "OLD", ["shop.orders"]),
        ("DROP TABLE tmp, orders", "tmp", ["shop.orders"]),
        ("DROP TABLE tmp, crm.people, shop.orders", "tmp", ["crm.people", "shop.orders"]),
        ("CREATE TABLE copy LIKE orders", "copy", []),
        ("ALTER TABLE old RENAME COLUMN orders TO b", "old", []),
        ("DROP TABLE tmp, crm.people", "tmp", []),  # crm's handler would take `tmp` for its own
        ("DROP TABLE shop.tmp, crm.people", "tmp", ["crm.people"]),
    ],
)
def test_a_statement_named_after_a_table_of_no_rule_is_that_of_a_table_that_it_changes(
    sql: str, named: str, parts: list[str]
) -> None:
    """Of a rename the tools name the new table, and Canal names the first of several dropped ones."""
    rules = ({"match": "shop.orders"}, {"match": "shop.other"}, {"match": "crm.people"})
    routed = Routed(*rules, order_by="table")
    delivery = routed.poll((routed.partitions[0], [rows(0, 1), statement(1, sql, named), rows(2, 1)]))
    assert [to.table.label for to, chunk in delivery.parts if chunk.alone] == parts


def test_a_truncate_is_not_that_of_another_table_whatever_its_comment_says() -> None:
    """Its handlers would empty their own table. The name in capitals may be another one."""
    routed = Routed({"match": "shop.orders"}, order_by="table")
    sql = "TRUNCATE TABLE ORDERS /* drop old rows, like every night */"
    told = record(0, "ORDERS", isDdl=True, type="TRUNCATE", sql=sql, data=None)
    assert routed.poll((routed.partitions[0], [told])).parts == []


@pytest.mark.parametrize(
    ("sql", "named", "told"),
    [
        ("RENAME TABLE orders TO archive.old", ("archive", "old"), ["shop.orders"]),  # it ran in `shop`
        ("RENAME TABLE orders TO archive.old, o TO orders", ("archive", "old"), ["shop.orders"]),
        ("DROP TABLE tmp, crm.people", ("shop", "tmp"), ["crm.people"]),
        ("RENAME TABLE archive.orders TO archive.old", ("archive", "old"), []),
        ("CREATE TABLE archive.copy LIKE orders", ("archive", "copy"), []),
    ],
)
def test_a_statement_that_no_table_gets_is_told_for_those_that_it_may_change(
    sql: str, named: tuple[str, str], told: list[str]
) -> None:
    """No record says in which database it ran, so a handler could take another table for its own."""
    routed = Routed({"match": "shop.orders"}, {"match": "crm.people"}, order_by="table")
    routed.poll((routed.partitions[0], [rows(0, 1)]))
    database, table = named
    message = record(1, table, database=database, isDdl=True, type="RENAME", sql=sql, data=None)
    with capture_logs() as logs:
        assert routed.poll((routed.partitions[0], [message])).parts == []
    lines = [line for line in logs if line["event"] == "statement_not_passed_on"]
    assert [line["table"] for line in lines] == told
    assert all(line["record_of"] == f"{database}.{table}" for line in lines)


@pytest.mark.parametrize("sql", ["ALTER TABLE _orders_gho CHANGE note remark text", "DROP TABLE tmp, orders"])
def test_so_it_is_with_dts_which_names_the_first_table_of_a_statement(sql: str) -> None:
    routed = Routed({"match": "shop.orders", "columns": {"exclude": ["note"]}}, order_by="table")
    start = Start("earliest", (), "initial", "a test")
    of = Assignment(TopicPartition("dts", 0), 1, start, routed.format("dts"))
    value = encode(
        record_fields(operation="DDL", objectName="shop", fields=None, beforeImages=None, afterImages=sql)
    )
    message = cast(Record, Message(topic="dts", partition=0, offset=0, value=value))
    delivery = routed.poll((of, [message]))
    assert [to.table.label for to, chunk in delivery.parts if chunk.alone] == ["shop.orders"]


@pytest.mark.parametrize(
    ("sql", "named", "told"),
    [
        ("RENAME TABLE orders TO old", "old", ["shop.orders"]),
        ("RENAME TABLE orders TO a, b TO orders", "a", ["shop.orders"]),
        ("DROP TABLE orders, a", "orders", []),  # the handlers of `orders` get it
        ("RENAME TABLE a TO b", "b", []),
        ("CREATE TABLE copy LIKE orders", "copy", []),
    ],
)
def test_a_statement_that_does_not_get_to_a_handler_of_a_table_that_it_changes_is_told(
    sql: str, named: str, told: list[str]
) -> None:
    log = {"type": "log"}
    rules = {"match": "shop.orders", "handlers": [log, {**log, "name": "own"}]}, {"match": "shop.*"}
    routed = Routed(*rules, order_by="table")
    with capture_logs() as logs:
        routed.poll((routed.partitions[0], [statement(0, sql, named)]))
    lines = [line for line in logs if line["event"] == "statement_not_passed_on"]
    assert [line["table"] for line in lines] == told
    assert all(line["handlers"] == ["own"] and line["record_of"] == f"shop.{named}" for line in lines)
