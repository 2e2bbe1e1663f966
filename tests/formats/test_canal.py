"""Canal messages one by one: their changes, and what is said of those that have none."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from canal_messages import message, row, sent, without
from captured import CapturedRecord

from handlers import Change
from worker.formats.canal.format import Canal
from worker.formats.interface import UndecodableRecord

PRACTICE = 100  # more messages of one shape than a decoder of its own takes


def decode(*records: CapturedRecord, format_: Canal | None = None) -> list[Change]:
    changes: list[Change] = []
    for record in records:
        (format_ or Canal()).decode(record, changes)
    return changes


@pytest.fixture(params=["first message", "shape with a decoder"])
def canal(request: pytest.FixtureRequest) -> Canal:
    """A reader that met nothing yet, and one that has a decoder for the shape of `message()`."""
    format_ = Canal()
    if request.param == "shape with a decoder":
        decode(*[message()] * PRACTICE, format_=format_)
    return format_


def test_an_insert_is_its_row_with_types_key_and_place(canal: Canal) -> None:
    (change,) = decode(message(gtid="uuid:5"), format_=canal)
    assert change == Change(
        op="insert",
        before=None,
        after={"id": 7, "total": Decimal("9061.00"), "note": None},
        key_columns=("id",),
        sql=None,
        source_time_ms=1763000000000,
        topic="cdc.shop",
        partition=3,
        offset=42,
        index=0,
        transaction="uuid:5",
        types={"id": "bigint", "total": "decimal(10,2)", "note": "varchar(20)"},
    )
    assert str(change.after["total"] if change.after else None) == "9061.00"


def test_rows_of_one_message_keep_their_order_and_count_from_0(canal: Canal) -> None:
    rows = [{"id": str(i), "total": "1.00", "note": f"n{i}"} for i in range(5)]
    changes = decode(message(data=rows), format_=canal)
    assert [(change.index, change.after["id"] if change.after else None) for change in changes] == [
        (i, i) for i in range(5)
    ]


def test_before_an_update_the_row_had_the_values_of_old(canal: Canal) -> None:
    rows = [{"id": "7", "total": "2.00", "note": "b"}, {"id": "8", "total": "3.00", "note": None}]
    old = [{"total": "1.00", "note": None}, {"note": "was"}]
    first, second = decode(message(type="UPDATE", data=rows, old=old), format_=canal)
    assert first.op == "update"
    assert first.before == {"id": 7, "total": Decimal("1.00"), "note": None}
    assert first.after == {"id": 7, "total": Decimal("2.00"), "note": "b"}
    assert second.before == {"id": 8, "total": Decimal("3.00"), "note": "was"}


def test_an_update_of_the_key_is_a_delete_of_the_old_row_and_an_insert_of_the_new_one(canal: Canal) -> None:
    gone, come = decode(message(type="UPDATE", old=[{"id": "1", "note": "was"}]), format_=canal)
    assert (gone.op, gone.after, come.op, come.before) == ("delete", None, "insert", None)
    assert gone.before == {"id": 1, "total": Decimal("9061.00"), "note": "was"}
    assert come.after == {"id": 7, "total": Decimal("9061.00"), "note": None}
    assert (gone.key, come.key) == ({"id": 1}, {"id": 7})
    assert (gone.index, come.index) == (0, 1)


def test_rows_after_one_whose_key_changed_have_their_places_behind_both_changes(canal: Canal) -> None:
    rows = [{"id": str(number), "total": "1.00", "note": None} for number in (1, 12, 3, 14)]
    old = [{"note": "a"}, {"id": "2"}, {"note": "c"}, {"id": "4"}]
    changes = decode(message(type="UPDATE", data=rows, old=old), format_=canal)
    assert [(change.index, change.op, change.key) for change in changes] == [
        (0, "update", {"id": 1}),
        (1, "delete", {"id": 2}),
        (2, "insert", {"id": 12}),
        (3, "update", {"id": 3}),
        (4, "delete", {"id": 4}),
        (5, "insert", {"id": 14}),
    ]


def test_a_key_that_is_named_in_old_but_stays_the_same_is_no_change_of_the_key(canal: Canal) -> None:
    (change,) = decode(message(type="UPDATE", old=[{"id": "07", "note": "was"}]), format_=canal)
    assert (change.op, change.key) == ("update", {"id": 7})


def test_one_column_of_a_key_of_several_changes_the_key(canal: Canal) -> None:
    gone, come = decode(message(type="UPDATE", pkNames=["id", "note"], old=[{"note": "a"}]), format_=canal)
    assert (gone.key, come.key) == ({"id": 7, "note": "a"}, {"id": 7, "note": None})


def test_without_a_primary_key_every_update_is_an_update(canal: Canal) -> None:
    (change,) = decode(message(type="UPDATE", pkNames=None, old=[{"id": "1"}]), format_=canal)
    assert (change.op, change.before and change.before["id"]) == ("update", 1)


def test_an_update_whose_old_row_was_not_logged_has_no_before(canal: Canal) -> None:
    (change,) = decode(message(type="UPDATE", old=None), format_=canal)
    (other,) = decode(message(type="UPDATE", old=[None]), format_=canal)
    assert change.before is other.before is None


def test_a_delete_has_its_row_before_and_none_after(canal: Canal) -> None:
    (change,) = decode(message(type="DELETE"), format_=canal)
    assert (change.op, change.after) == ("delete", None)
    assert change.before == {"id": 7, "total": Decimal("9061.00"), "note": None}
    assert change.key == {"id": 7}


@pytest.mark.parametrize("names", [None, []])
def test_a_table_without_a_key_has_no_key_columns(names: list[str] | None) -> None:
    (change,) = decode(message(pkNames=names))
    assert change.key_columns is None
    assert change.key is None


@pytest.mark.parametrize("kind", ["CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY"])
def test_ddl_is_one_change_with_its_statement(canal: Canal, kind: str) -> None:
    record = message(isDdl=True, data=None, mysqlType=None, pkNames=None, type=kind, sql="ALTER TABLE x")
    (change,) = decode(record, format_=canal)
    assert (change.op, change.sql, change.before, change.after) == ("ddl", "ALTER TABLE x", None, None)
    assert (change.types, change.key, change.offset) == (None, None, 42)


def test_truncate_is_an_operation_of_its_own() -> None:
    (change,) = decode(message(isDdl=True, data=None, type="TRUNCATE", sql="TRUNCATE orders"))
    assert (change.op, change.sql) == ("truncate", "TRUNCATE orders")


@pytest.mark.parametrize(
    "record", [sent(None), message(data=None), message(data=[]), message(data=None, type="QUERY")]
)
def test_a_record_without_rows_makes_no_change(canal: Canal, record: CapturedRecord) -> None:
    assert decode(record, format_=canal) == []


def test_types_that_a_message_does_not_tell_leave_texts() -> None:
    changes = decode(*[message(mysqlType=None)] * PRACTICE)
    assert {repr(change.after) for change in changes} == {"{'id': '7', 'total': '9061.0', 'note': None}"}
    assert changes[-1].types is None


def test_a_column_that_the_types_do_not_name_is_kept(canal: Canal) -> None:
    (change,) = decode(message(data=[{"id": "7", "total": "1.00", "note": "x", "extra": "e"}]), format_=canal)
    assert change.after == {"id": 7, "total": Decimal("1.00"), "note": "x", "extra": "e"}


def test_a_column_that_the_row_does_not_have_is_not_made_up(canal: Canal) -> None:
    (change,) = decode(message(data=[{"id": "7"}]), format_=canal)
    assert change.after == {"id": 7}


def test_numbers_in_json_count_as_their_text(canal: Canal) -> None:
    raw = (message().value() or b"").replace(b'"7"', b"7").replace(b'"9061.0"', b"9061.0")
    (change,) = decode(sent(raw.replace(b'"note": null', b'"note": 12')), format_=canal)
    assert repr(change.after) == "{'id': 7, 'total': Decimal('9061.00'), 'note': '12'}"


def test_a_key_is_spelled_as_the_row_spells_it(canal: Canal) -> None:
    """MySQL's names know no case; with the key NULL all rows would be one."""
    (change,) = decode(message(pkNames=["ID"]), format_=canal)
    assert change.key == {"id": 7}
    with pytest.raises(UndecodableRecord, match="is not in the row"):
        decode(message(pkNames=["ID"], mysqlType=None), format_=canal)


def test_names_that_are_no_identifiers_are_columns_like_others() -> None:
    names = ["dot.col", "a b", "select", "q``tick", "列", "__slots__", ""]
    record = message(
        data=[{name: str(i) for i, name in enumerate(names)}],
        mysqlType=dict.fromkeys(names, "int"),
        pkNames=None,
    )
    expected = {name: i for i, name in enumerate(names)}
    format_ = Canal()
    assert all(change.after == expected for change in decode(*[record] * PRACTICE, format_=format_))


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\tb"])
def test_names_that_no_decoder_takes_are_columns_like_others(name: str) -> None:
    record = message(data=[{name: "1"}], mysqlType={name: "int"}, pkNames=None)
    assert all(change.after == {name: 1} for change in decode(*[record] * PRACTICE, format_=Canal()))


def test_messages_of_other_shapes_in_between_are_read_by_their_own_types() -> None:
    format_ = Canal()
    as_text = message(mysqlType={"id": "varchar(9)", "total": "decimal(12,3)", "note": "varchar(20)"})
    by_unit = message(pkNames=["id", "total"])
    changes = decode(*[message(), as_text, by_unit] * PRACTICE, format_=format_)
    assert {repr(change.after) for change in changes[0::3]} == {
        "{'id': 7, 'total': Decimal('9061.00'), 'note': None}"
    }
    assert {repr(change.after) for change in changes[1::3]} == {
        "{'id': '7', 'total': Decimal('9061.000'), 'note': None}"
    }
    assert {change.key_columns for change in changes[2::3]} == {("id", "total")}


def test_a_zero_date_does_not_disturb_the_messages_after_it() -> None:
    types = {"id": "int", "at": "datetime"}
    common = message(mysqlType=types, data=[{"id": "1", "at": "2024-02-29 10:00:00"}])
    zero = message(mysqlType=types, data=[{"id": "2", "at": "0000-00-00 00:00:00"}])
    format_ = Canal()
    changes = decode(*[common] * PRACTICE, zero, common, zero, format_=format_)
    assert [change.after for change in changes[PRACTICE:]] == [
        {"id": 2, "at": None},
        {"id": 1, "at": datetime(2024, 2, 29, 10)},
        {"id": 2, "at": None},
    ]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (sent(b"{}"), "missing required field"),
        (sent(b'{"es": 1, "type": "INSERT", "data": [{"id": "\xff"}]}'), "not a Canal message"),
        (without("es"), "missing required field `es`"),
        (message(es="soon"), r"got `str` - at `\$.es`"),
        (message(data={"id": "7"}), r"Expected `array \| null`, got `object` - at `\$.data`"),
        (message(mysqlType=["bigint"]), "`mysqlType` or `pkNames`"),
        (message(type="UPSERT"), "type 'UPSERT'"),
        (message(type="UPDATE", old=[]), "1 rows in `data`, 0 in `old`"),
        (message(type="UPDATE", old=[["x"]]), "`old`"),
        (row(total="much"), r"'total' of type decimal\(10,2\) holds 'much'"),
        (row(id="7.5"), "'id' of type bigint holds '7.5'"),
        (row(id="x" * 500), r"'id' of type bigint holds 'x{59}\.\.\."),
        (row(id=True), "column 'id' holds True, not text"),
        (message(type="UPDATE", old=[{"id": "none"}]), "'id' of type bigint holds 'none'"),
    ],
)  # fmt: skip
def test_what_is_no_canal_message_says_why_and_changes_nothing(
    canal: Canal, record: CapturedRecord, said: str
) -> None:
    changes: list[Change] = []
    with pytest.raises(UndecodableRecord, match=said):
        canal.decode(record, changes)
    assert changes == []


@pytest.mark.parametrize("text", ["null", "NULL", "nUll"])
@pytest.mark.parametrize("column", ["id", "total"])
def test_the_text_null_is_no_number_however_many_messages_came_before(
    canal: Canal, column: str, text: str
) -> None:
    with pytest.raises(UndecodableRecord, match=f"column '{column}' of type .* holds '{text}'"):
        decode(row(**{column: text}), format_=canal)
    (change,) = decode(row(note=text), format_=canal)
    assert change.after == {"id": 7, "total": Decimal("1.00"), "note": text}


def test_a_later_row_that_is_undecodable_takes_the_whole_message_with_it(canal: Canal) -> None:
    good, bad = ({"id": text, "total": "1.00", "note": "x"} for text in ("1", "one"))
    changes: list[Change] = []
    with pytest.raises(UndecodableRecord):
        canal.decode(message(data=[good, bad]), changes)
    assert changes == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"sql": "DROP TABLE t"}, "rows"),
        ({"data": None, "sql": None}, "no `sql`"),
        ({"data": [], "sql": " "}, "no"),
    ],
)
def test_ddl_with_rows_or_without_its_statement_is_refused(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(UndecodableRecord, match=what):
        Canal().decode(message(isDdl=True, type="ALTER", **fields), [])


@pytest.mark.parametrize("part", [{"onlyHandleKey": True}, {"claimCheckLocation": "s3://b/0001.json"}])
def test_a_row_of_which_ticdc_sent_the_key_alone_is_refused(canal: Canal, part: dict[str, Any]) -> None:
    whole = decode(message(_tidb={"commitTs": 429918007904436226}), format_=canal)
    assert [change.op for change in whole] == ["insert"]
    with pytest.raises(UndecodableRecord, match="large-message-handle-option=none"):
        decode(message(_tidb=part), format_=canal)
    # Which row it was that went, the key tells.
    (gone,) = decode(message(type="DELETE", data=[{"id": "7"}], _tidb=part), format_=canal)
    assert (gone.op, gone.before) == ("delete", {"id": 7})
