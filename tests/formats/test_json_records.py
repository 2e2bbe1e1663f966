"""JSON records one by one: the changes that a layout makes of them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from json_messages import decode, reader, record

from handlers import Change
from worker.formats.decoding import source_time
from worker.formats.interface import UndecodableRecord

ENVELOPE: dict[str, Any] = {"operation": "op", "before": "before", "after": "after", "key": ["id"]}


def images(value: Any, **layout: Any) -> list[tuple[str, Any, Any]]:
    return [(change.op, change.before, change.after) for change in decode(record(value), **layout)]


def test_a_record_is_a_change_with_its_row_key_types_and_place() -> None:
    value = {
        "meta": {"op": "c", "at": 1763000000, "tx": 77},
        "payload": {"id": 7, "total": "9061.5", "note": None},
    }
    layout = {
        "operation": "meta.op",
        "after": "payload",
        "key": ["id"],
        "time": "meta.at",
        "time_unit": "s",
        "transaction": "meta.tx",
        "columns": {"total": "decimal(10,2)"},
    }
    assert decode(record(value), **layout) == [
        Change(
            op="insert",
            before=None,
            after={"id": 7, "total": Decimal("9061.50"), "note": None},
            key_columns=("id",),
            sql=None,
            source_time_ms=1763000000000,
            topic="cdc.shop.orders",
            partition=3,
            offset=42,
            index=0,
            transaction="77",
            types={"total": "decimal(10,2)"},
        )
    ]


def test_without_more_the_whole_value_is_a_row_to_insert() -> None:
    (change,) = decode(record({"id": 1, "a": "x"}))
    assert (change.op, change.after, change.before) == ("insert", {"id": 1, "a": "x"}, None)
    assert (change.key, change.types, change.transaction, change.source_time_ms) == (
        None,
        None,
        None,
        1763000000123,
    )


@pytest.mark.parametrize(
    ("said", "op"),
    [("c", "insert"), ("u", "update"), ("r", "snapshot"), ("INSERT", "insert"), ("update", "update")],
)
def test_the_operation_is_what_the_record_says(said: str, op: str) -> None:
    assert images({"op": said, "after": {"id": 1}}, **ENVELOPE) == [(op, None, {"id": 1})]


@pytest.mark.parametrize(
    ("value", "op"),
    [
        ({"deleted": True}, "delete"),
        ({"deleted": False}, "insert"),
        ({"deleted": 2}, "update"),
        ({}, "snapshot"),
    ],
)
def test_a_word_of_an_operation_is_what_json_writes_and_null_what_is_not_there(value: Any, op: str) -> None:
    meanings = {True: "delete", "false": "insert", 2: "update", None: "snapshot"}
    (change,) = decode(record({"id": 1} | value), operation="deleted", operations=meanings)
    assert change.op == op


def test_an_operation_that_the_layout_does_not_know_is_refused() -> None:
    with pytest.raises(UndecodableRecord, match=r"operation 'merge' is not in json\.operations \(c, u\)"):
        decode(record({"op": "merge"}), operation="op", operations={"c": "insert", "u": "update"})


def test_an_operation_to_skip_makes_no_change() -> None:
    assert images({"op": "hb"}, operation="op", operations={"hb": "skip"}) == []


@pytest.mark.parametrize(
    ("before", "after", "op"),
    [(None, {"id": 1}, "insert"), ({"id": 1}, {"id": 1, "a": 2}, "update"), ({"id": 1}, None, "delete")],
)
def test_without_an_operation_before_and_after_tell(before: Any, after: Any, op: str) -> None:
    layout = {"before": "before", "after": "after"}
    assert images({"before": before, "after": after}, **layout) == [(op, before, after)]
    sent = {name: row for name, row in (("before", before), ("after", after)) if row is not None}
    assert images(sent, **layout) == [(op, before, after)]


def test_an_update_of_the_key_is_a_delete_and_an_insert() -> None:
    value = {"op": "u", "before": {"id": 1, "a": 5}, "after": {"id": 2, "a": 5}}
    changes = decode(record(value), **ENVELOPE)
    assert [(change.op, change.before, change.after, change.index) for change in changes] == [
        ("delete", {"id": 1, "a": 5}, None, 0),
        ("insert", None, {"id": 2, "a": 5}, 1),
    ]


def test_a_before_without_the_key_had_the_key_of_after() -> None:
    value = {"op": "u", "before": {"a": 4}, "after": {"id": 2, "a": 5}}
    assert images(value, **ENVELOPE) == [("update", {"id": 2, "a": 4}, {"id": 2, "a": 5})]


@pytest.mark.parametrize(
    ("value", "layout"),
    [
        ({"op": "d", "before": {"id": 1, "a": 5}, "after": None}, ENVELOPE),
        ({"op": "d", "after": {"id": 1, "a": 5}}, ENVELOPE),
        ({"op": "d", "id": 1, "a": 5}, {"operation": "op", "key": ["id"], "exclude": ["op"]}),
    ],
)
def test_a_delete_has_its_row_before_wherever_it_stood(value: Any, layout: dict[str, Any]) -> None:
    assert images(value, **layout) == [("delete", {"id": 1, "a": 5}, None)]


def test_members_that_are_excluded_are_no_columns() -> None:
    value = {"op": "c", "id": 1, "_ts": 5}
    assert images(value, operation="op", exclude=["op", "_ts"]) == [("insert", None, {"id": 1})]


def test_a_member_without_a_name_can_be_excluded() -> None:
    value = {"id": 1, "": "of no target"}
    assert images(value) == [("insert", None, value)]
    assert images(value, exclude=[""]) == [("insert", None, {"id": 1})]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "not a JSON record: the value is empty"),
        (b"nonsense", "not a JSON record: JSON is malformed"),
        (b'{"x": ' + b"[" * 100_000, "not a JSON record: nested too deeply"),
        (b"\xff\xfe", "not a JSON record"),
        ([1], "json.after: after is not an object|no row at json.after"),
        ({"op": "c", "after": 5}, "json.after: after is not an object"),
        ({"op": "c"}, "an operation insert without a row at json.after: after"),
        ({"op": "u", "before": [], "after": {}}, "json.before: before is not an object"),
        ({"op": "d"}, "key column 'id' is not in the row"),
        ({"op": ["c"], "after": {}}, r"operation \"\['c'\]\" is not in json"),
        ({"op": "c", "after": {"id": 1, "n": 5}}, r"column 'n' of type date holds 5: no date"),
    ],
)
def test_what_does_not_fit_the_layout_says_what_is_wrong(value: Any, said: str) -> None:
    layout = {**ENVELOPE, "columns": {"n": "date"}}
    if isinstance(value, list):
        layout["operation"] = None
    with pytest.raises(UndecodableRecord, match=said):
        decode(record(value), **layout)


def test_a_delete_of_nothing_is_refused() -> None:
    with pytest.raises(UndecodableRecord, match="a delete without a row and without a key"):
        decode(record({"op": "d"}), operation="op", after="after")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
rows = st.dictionaries(st.sampled_from(["id", "n", "m", "j", "s"]), json_values, max_size=4)
near_misses = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from("cudr") | json_values,
        "t": st.just("orders") | json_values,
        "before": rows | json_values,
        "after": rows | json_values,
        "ts": json_values,
        "pk": rows | json_values,
    },
)
LAYOUTS = [
    {
        **ENVELOPE,
        "time": "ts",
        "columns": {"n": "datetime", "m": "binary(3)", "j": "json", "s": "set('a','b')"},
    },
    {"table": "t", "key": "pk", "operation": "op", "columns": {"n": "decimal(3,1)", "m": "boolean"}},
    {"table": "$topic.1", "key": "$key", "transaction": "ts", "columns": {"n": "timestamp", "j": "point"}},
    {**ENVELOPE, "table": "after.t", "key": None, "tables": [{"match": "*", "key": "$key.x"}]},
]


@given(
    st.sampled_from(LAYOUTS),
    st.none()
    | st.binary(max_size=40)
    | (near_misses | json_values).map(lambda value: json.dumps(value).encode()),
    st.none() | st.binary(max_size=9) | (rows | json_values).map(lambda value: json.dumps(value).encode()),
)
@example(LAYOUTS[0], b'{"op":"c","after":{"id":1e99999999999999999999}}', None)
@example(LAYOUTS[0], b'{"op":"c","after":{"id":' + b"9" * 5000 + b"}}", None)
@example(LAYOUTS[0], b'{"op":"c","after":{"id":1,"j":"\xed\xa0\x80"}}', None)
def test_garbage_raises_only_what_says_so(
    layout: dict[str, Any], value: bytes | None, key: bytes | None
) -> None:
    format_ = reader(**layout)
    one = record(value, key)
    source_time(format_, one)
    changes: list[Change] = []
    for read in (lambda: format_.explain(one), lambda: format_.decode(one, changes)):
        try:
            read()
        except UndecodableRecord:
            assert changes == []
