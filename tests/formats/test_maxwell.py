"""Maxwell's rows one by one: the changes they make, and their keys."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from maxwell_messages import ORDERS, PRACTICE, decode, knowing, row

from handlers import Change
from worker.formats.interface import UndecodableRecord
from worker.formats.maxwell.format import Maxwell


def test_an_insert_is_its_row_with_types_key_and_place(maxwell: Maxwell) -> None:
    (change,) = decode(row(), maxwell)
    assert change == Change(
        op="insert",
        before=None,
        after={"id": 7, "total": Decimal("9061.50"), "note": None},
        key_columns=("id",),
        sql=None,
        source_time_ms=1763000000000,
        topic="maxwell",
        partition=3,
        offset=42,
        index=0,
        transaction="77",
        types={"id": "bigint", "total": "decimal(10,2)", "note": "varchar(20)"},
    )
    assert str(change.after["total"] if change.after else None) == "9061.50"


def test_before_an_update_the_row_had_the_values_of_old(maxwell: Maxwell) -> None:
    (change,) = decode(row(type="update", old={"total": 1.0, "note": "was"}), maxwell)
    assert change.op == "update"
    assert change.before == {"id": 7, "total": Decimal("1.00"), "note": "was"}
    assert change.after == {"id": 7, "total": Decimal("9061.50"), "note": None}


def test_null_in_old_was_null_and_a_column_that_is_not_in_old_did_not_change(maxwell: Maxwell) -> None:
    (change,) = decode(row(type="update", old={"total": None}), maxwell)
    assert change.before == {"id": 7, "total": None, "note": None}


@pytest.mark.parametrize("old", [..., {}, None])
def test_an_update_without_old_does_not_tell_what_the_row_was(maxwell: Maxwell, old: Any) -> None:
    (change,) = decode(row(type="update", old=old), maxwell)
    assert (change.before, change.before_is_whole) == (None, False)


def test_a_delete_has_its_row_before_and_none_after(maxwell: Maxwell) -> None:
    (change,) = decode(row(type="delete"), maxwell)
    assert (change.op, change.after, change.key) == ("delete", None, {"id": 7})
    assert change.before == {"id": 7, "total": Decimal("9061.50"), "note": None}


def test_a_row_of_a_bootstrap_is_a_snapshot(maxwell: Maxwell) -> None:
    (change,) = decode(row(type="bootstrap-insert", xid=..., position=..., commit=...), maxwell)
    assert (change.op, change.before, change.transaction) == ("snapshot", None, None)
    assert change.after == {"id": 7, "total": Decimal("9061.50"), "note": None}


def test_an_update_of_the_key_is_a_delete_and_an_insert(maxwell: Maxwell) -> None:
    gone, come = decode(row(type="update", old={"id": 1, "total": 2}), maxwell)
    assert (gone.op, gone.index, gone.before, gone.after) == (
        "delete", 0, {"id": 1, "total": Decimal("2.00"), "note": None}, None
    )  # fmt: skip
    assert (come.op, come.index, come.before) == ("insert", 1, None)
    assert come.after == {"id": 7, "total": Decimal("9061.50"), "note": None}


# ---- the key


@pytest.mark.parametrize(
    "key",
    [
        '{"database":"shop","table":"orders","pk.id":7}',
        '["shop","orders",[{"id":7}]]',
    ],
)
def test_without_primary_key_columns_the_records_key_names_them(unknowing: Maxwell, key: str) -> None:
    (change,) = decode(row(key, primary_key_columns=...), unknowing)
    assert change.key == {"id": 7}


def test_key_columns_are_spelled_as_in_the_row() -> None:
    """In the record's key Maxwell writes them in lower case."""
    data = {"Id": 1, "CamelCase": "a"}
    key = '{"database":"shop","table":"t","pk.camelcase":"a","pk.id":1}'
    (change,) = decode(row(key, data=data, primary_key_columns=...))
    assert change.key_columns == ("CamelCase", "Id")


@pytest.mark.parametrize("key", [None, "a hash", '{"database":"shop","table":"orders","_uuid":"x"}', "[]"])
def test_where_the_record_does_not_say_the_table_does(maxwell: Maxwell, key: str | None) -> None:
    (change,) = decode(row(key, primary_key_columns=...), maxwell)
    assert change.key == {"id": 7}
    (change,) = decode(row(key, primary_key_columns=...))
    assert change.key is None


def test_a_table_without_a_key_has_no_key_columns(maxwell: Maxwell) -> None:
    (change,) = decode(row(primary_key_columns=[]), maxwell)
    assert change.key_columns is None


@pytest.mark.parametrize("name", ['a "b"', "back\\slash", "tab\t"])
def test_names_that_no_decoder_takes_are_columns_like_others(name: str) -> None:
    format_ = Maxwell()
    record = row(data={"id": 7, name: 1})
    rows = [change.after for _ in range(PRACTICE) for change in decode(record, format_)]
    assert rows == [{"id": 7, name: 1}] * PRACTICE


@pytest.mark.parametrize("times", [1, PRACTICE])
def test_a_row_without_its_key_is_refused(times: int) -> None:
    """Where Maxwell is told to exclude the column."""
    format_ = knowing(ORDERS)
    for _ in range(times):
        decode(row(), format_)
    with pytest.raises(UndecodableRecord, match="key column 'id' is not in the row"):
        decode(row(data={"total": 1}), format_)


@pytest.mark.parametrize("times", [1, PRACTICE])
def test_a_key_column_that_changed_its_case_is_spelled_as_in_the_row(times: int) -> None:
    """The record's key has it in lower case before and after."""
    maxwell, key = Maxwell(), '{"database":"shop","table":"t","pk.orderid":1}'
    for name in ("OrderId", "orderid", "OrderId"):
        for _ in range(times):
            (change,) = decode(row(key, data={name: 1, "total": 2}, primary_key_columns=...), maxwell)
            assert change.key == {name: 1}


def test_a_row_without_its_key_does_not_tell_how_the_key_is_spelled() -> None:
    maxwell, fields = Maxwell(), {"primary_key_columns": ["orderid"], "type": "update", "old": {"total": 1}}
    with pytest.raises(UndecodableRecord, match="key column 'orderid' is not in the row"):
        decode(row(data={"total": 2}, **fields), maxwell)
    (change,) = decode(row(data={"OrderId": 7, "total": 2}, **fields), maxwell)
    assert change.key == {"OrderId": 7}
