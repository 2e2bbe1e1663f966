"""What Canal writes of a binlog that holds less than whole rows: statements, parts of documents and of rows.

Its own settings take all of these (`canal.instance.binlog.format`, `canal.instance.binlog.image`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import canal_messages as flat
import canal_packets as packets
import pytest
from captured import CapturedRecord

from handlers import Change
from worker.formats.canal.format import Canal
from worker.formats.decoding import explained
from worker.formats.interface import Apart, PlainRoute, Record, Skip, UndecodableRecord

SQL = "UPDATE orders SET total = 2, password = 'hunter2'"


def decode(record: Record, format_: Canal | None = None) -> list[Change]:
    into: list[Change] = []
    (format_ or Canal()).decode(record, into)
    return into


def statement(type_: str, **fields: Any) -> CapturedRecord:
    return flat.message(
        **{"type": type_, "sql": SQL, "data": None, "mysqlType": None, "pkNames": None, **fields}
    )


@pytest.mark.parametrize("type_", ["INSERT", "UPDATE", "DELETE"])
@pytest.mark.parametrize("data", [None, []])
def test_a_statement_instead_of_its_rows_is_undecodable(type_: str, data: Any) -> None:
    one = statement(type_, data=data)
    assert explained(Canal(), one) == PlainRoute("shop", "orders")
    with pytest.raises(UndecodableRecord, match="binlog_format=ROW") as raised:
        decode(one)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("table", [None, ""])
def test_a_statement_on_several_tables_has_no_name_and_is_undecodable(table: str | None) -> None:
    with pytest.raises(UndecodableRecord, match="binlog_format=ROW"):
        explained(Canal(), statement("UPDATE", table=table))


def test_a_statement_in_a_packet_instead_of_its_rows_is_undecodable() -> None:
    one = packets.sent(packets.packet(packets.ddl("orders", SQL, event=packets.UPDATE, is_ddl=0)))
    assert explained(Canal(), one) == PlainRoute("shop", "orders")
    with pytest.raises(UndecodableRecord, match="binlog_format=ROW"):
        decode(one)
    with pytest.raises(UndecodableRecord, match="binlog_format=ROW"):
        explained(Canal(), packets.sent(packets.packet(packets.ddl("", SQL, event=packets.UPDATE, is_ddl=0))))


def test_a_statement_in_a_packet_leaves_the_rows_beside_it() -> None:
    statement = packets.ddl("", SQL, event=packets.UPDATE, is_ddl=0)
    rows = packets.rows("items", packets.row({"id": "7"}))
    found = explained(Canal(), packets.sent(packets.packet(statement, rows, statement)))
    assert isinstance(found, Apart)
    (own, value), (nowhere, rest) = found.parts
    assert own == PlainRoute("shop", "items")
    assert [change.after for change in decode(packets.sent(value))] == [{"id": 7}]
    assert nowhere == PlainRoute("", "")
    with pytest.raises(UndecodableRecord, match="binlog_format=ROW"):
        explained(Canal(), packets.sent(rest))


def test_what_holds_neither_a_statement_nor_rows_is_no_change() -> None:
    assert decode(flat.message(type="UPDATE", data=None, sql="")) == []
    assert isinstance(explained(Canal(), flat.message(type="UPDATE", data=None, table="", sql="")), Skip)


@pytest.mark.parametrize(
    "part",
    ["JSON_REPLACE(doc, '$.a', 5)", "JSON_INSERT(JSON_REMOVE(doc, '$.b'), '$.c', \"x\")", "doc"],
    ids=["changed", "several", "nothing"],
)
def test_a_part_of_a_document_is_undecodable(part: str) -> None:
    """`binlog_row_value_options=PARTIAL_JSON`: the call of a function in the place of the value."""
    types = {"id": "int", "doc": "json"}
    whole = flat.message(data=[{"id": "1", "doc": '{"a": 1}'}], mysqlType=types)
    format_ = Canal()
    for _ in range(70):
        assert [change.after for change in decode(whole, format_)] == [{"id": 1, "doc": '{"a":1}'}]
    with pytest.raises(UndecodableRecord, match=r"column 'doc' of type json .*binlog_row_value_options"):
        decode(flat.message(data=[{"id": "1", "doc": part}], mysqlType=types), format_)
    row = packets.row({"id": "1", "doc": part}, types=types)
    with pytest.raises(UndecodableRecord, match=r"column 'doc' of type json .*binlog_row_value_options"):
        decode(packets.sent(packets.packet(packets.rows("orders", row))))


@pytest.mark.parametrize("name", ["1", "true", "null"])
def test_a_document_that_is_its_columns_name_is_one(name: str) -> None:
    [change] = decode(flat.message(data=[{"id": "1", name: name}], mysqlType={"id": "int", name: "json"}))
    assert change.after == {"id": 1, name: name}


@pytest.mark.parametrize(
    "one",
    [
        flat.message(data=[{"id": "7", "note": "a"}], mysqlType={"id": "int", "note": "text"}),
        flat.message(
            data=[{"id": "7", "note": "a"}], mysqlType={"id": "int", "note": "text", "total": "int"}
        ),
        packets.sent(packets.packet(packets.rows("orders", packets.row({"id": "7", "note": "a"})))),
    ],
    ids=["flat", "flat, with the types of all columns", "packet"],
)
def test_a_minimal_insert_is_a_whole_row_whose_other_columns_get_defaults(one: Record) -> None:
    [change] = decode(one)
    assert (change.op, change.after, change.is_whole) == ("insert", {"id": 7, "note": "a"}, True)


def test_an_update_that_tells_no_key_and_no_old_value_is_undecodable() -> None:
    """`binlog_row_image=MINIMAL`: the key is in the image before it, of which messages show what changed."""
    one = flat.message(type="UPDATE", data=[{"total": "2"}], old=[{}], pkNames=None)
    with pytest.raises(UndecodableRecord, match="binlog_row_image=FULL"):
        decode(one)


def test_a_minimal_update_in_a_packet_has_its_key_and_says_that_it_lacks_columns() -> None:
    row = packets.row({"total": "2"}, {"id": "7"})
    [change] = decode(packets.sent(packets.packet(packets.rows("orders", row, event=packets.UPDATE))))
    assert (change.op, change.key, str((change.after or {})["total"])) == ("update", {"id": 7}, "2.00")
    assert (change.lacks, change.before_is_whole) == (None, False)


def test_a_minimal_update_in_a_packet_of_a_table_without_a_key_is_the_whole_row() -> None:
    row = packets.row({"total": "2"}, {"id": "7", "total": "1", "note": "a"}, key=())
    [change] = decode(packets.sent(packets.packet(packets.rows("orders", row, event=packets.UPDATE))))
    assert change.before == {"id": 7, "total": Decimal("1.00"), "note": "a"}
    assert change.after == {"id": 7, "total": Decimal("2.00"), "note": "a"}
    assert (change.is_whole, change.before_is_whole) == (True, True)
