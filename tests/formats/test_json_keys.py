"""The key and the time of JSON records, and records that have nothing but a key."""

from __future__ import annotations

from typing import Any

import pytest
from json_messages import decode, reader, record

from handlers import Change
from worker.formats.decoding import source_time
from worker.formats.interface import UndecodableRecord


@pytest.mark.parametrize(
    ("layout_key", "value", "record_key"),
    [
        (["id"], {"row": {"id": 1, "a": 2}}, None),
        ("pk", {"row": {"id": 1, "a": 2}, "pk": {"id": 1}}, None),
        ("pk", {"row": {"id": 1, "a": 2}, "pk": ["id"]}, None),
        ("pk", {"row": {"a": 2}, "pk": {"id": 1}}, None),
        ("$key", {"row": {"id": 1, "a": 2}}, {"id": 1}),
        ("$key.pk", {"row": {"a": 2}}, {"pk": {"id": 1}}),
        (["id"], {"row": {"a": 2}}, {"id": 1, "other": 3}),
    ],
)
def test_the_key_is_named_or_found_in_the_record(layout_key: Any, value: Any, record_key: Any) -> None:
    """Columns that stand in the key alone are columns of the row."""
    (change,) = decode(record(value, record_key), key=layout_key, after="row")
    assert change.key == {"id": 1}
    assert change.after == {"id": 1, "a": 2}


@pytest.mark.parametrize(
    ("layout_key", "record_key"), [("$key", None), ("pk", None), ([], {"id": 1}), ("pk", {})]
)
def test_a_record_that_names_no_key_has_none(layout_key: Any, record_key: Any) -> None:
    (change,) = decode(record({"id": 1}, record_key), key=layout_key)
    assert (change.key, change.key_columns) == (None, None)


@pytest.mark.parametrize(
    ("layout_key", "value", "said"),
    [
        (["id", "b"], {"id": 1}, "key column 'b' is not in the row"),
        ("pk", {"pk": 5}, "json.key holds 5: neither an object nor a list of column names"),
        ("pk", {"pk": [1]}, r"json.key holds \[1\]"),
        ("pk", {"pk": ["id"]}, "key column 'id' is not in the row"),
    ],
)
def test_a_key_that_is_none_is_refused(layout_key: Any, value: Any, said: str) -> None:
    with pytest.raises(UndecodableRecord, match=said):
        decode(record(value, {"x": 1}), key=layout_key)


@pytest.mark.parametrize(
    ("layout_key", "record_key", "gone"),
    [
        (["id"], {"id": 7}, {"id": 7}),
        (["id"], {"id": 7, "more": 1}, {"id": 7}),
        (["id"], 7, {"id": 7}),
        (["id"], "7", {"id": 7}),
        (["id"], b"7", {"id": 7}),
        (["a", "b"], {"a": 1, "b": None}, {"a": 1, "b": None}),
        ("$key", {"id": 7}, {"id": 7}),
        ("$key.pk", {"pk": {"id": 7}}, {"id": 7}),
    ],
)
def test_a_record_without_a_value_deletes_the_row_of_its_key(
    layout_key: Any, record_key: Any, gone: Any
) -> None:
    one = record(None, record_key)
    (change,) = decode(one, key=layout_key, columns={"id": "int"})
    assert (change.op, change.before, change.after, change.key) == ("delete", gone, None, gone)


@pytest.mark.parametrize("key", ["1.10", "12e5", "true", "-0.0", "007", "4e0000"])
@pytest.mark.parametrize("columns", [{}, {"id": "varchar(9)"}])
def test_a_key_that_is_a_text_names_its_row_though_it_looks_like_a_number(
    key: str, columns: dict[str, str]
) -> None:
    """A StringSerializer writes texts without quotes."""
    (there,) = decode(record({"id": key}), key=["id"], columns=columns)
    (gone,) = decode(record(None, key.encode()), key=["id"], columns=columns)
    assert gone.key == there.key


def test_digits_without_quotes_are_a_text_if_the_last_row_of_the_table_has_texts() -> None:
    """Else a batch with a row and its delete would keep the row."""
    format_ = reader(table="$topic.2", key=["id"])
    changes: list[Change] = []
    for table, value in (("a", "7"), ("b", 7), ("a", None), ("b", None), ("a", 8), ("a", None)):
        row = None if value is None else {"id": value}
        format_.decode(record(row, b"7", topic=f"cdc.shop.{table}"), changes)
    assert [change.key for change in changes] == [
        *({"id": "7"}, {"id": 7}),
        *({"id": "7"}, {"id": 7}),
        *({"id": 8}, {"id": 7}),
    ]


@pytest.mark.parametrize(
    ("layout_key", "record_key"),
    [
        (None, {"id": 7}),
        (["id"], None),
        (["id"], {"other": 7}),
        (["id"], [7]),
        (["id"], b"\xff"),
        (["a", "b"], 7),
        ("$key", 7),
        ("pk", {"id": 7}),
    ],
)
def test_a_record_without_a_value_whose_key_is_not_told_changes_nothing(
    layout_key: Any, record_key: Any
) -> None:
    assert decode(record(None, record_key), key=layout_key) == []


def test_a_table_has_its_own_key_and_types_before_those_of_all() -> None:
    layout = {
        "table": "t",
        "key": ["id"],
        "exclude": ["t"],
        "columns": {"a": "decimal(5,1)", "b": "bigint"},
        "tables": [
            {"match": "shop.lines", "key": ["id", "n"], "columns": {"a": "varchar(9)"}},
            {"match": "shop.*", "columns": {"c": "double"}},
        ],
    }
    row = {"id": 1, "n": 2, "a": "1", "b": "3"}
    format_ = reader(**layout)
    for _ in range(2):
        changes: list[Change] = []
        for table in ("lines", "others"):
            format_.decode(record(row | {"t": table}), changes)
        lines, others = changes
        assert (lines.key_columns, lines.after) == (("id", "n"), {"id": 1, "n": 2, "a": "1", "b": 3})
        assert lines.types == {"a": "varchar(9)", "b": "bigint"}
        assert (others.key_columns, others.types) == (
            ("id",),
            {"a": "decimal(5,1)", "b": "bigint", "c": "double"},
        )


@pytest.mark.parametrize(
    ("unit", "sent", "ms"),
    [
        ("ms", 1763000000123, 1763000000123),
        ("s", 1763000000, 1763000000000),
        ("s", 1763000000.5, 1763000000500),
        ("s", "1763000000", 1763000000000),
        ("us", 1763000000123456, 1763000000123),
        ("ns", 1763000000123456789, 1763000000123),
        ("ms", -1, -1),
        ("iso8601", "2025-11-13T02:13:20Z", 1763000000000),
        ("iso8601", "2025-11-13T10:13:20.123+08:00", 1763000000123),
        ("iso8601", "2025-11-13 02:13:20", 1763000000000),
        ("ms", None, 1763000000123),
    ],
)
def test_the_time_is_counted_in_milliseconds(unit: str, sent: Any, ms: int) -> None:
    one = record({"id": 1, "at": sent})
    (change,) = decode(one, time="at", time_unit=unit)
    assert change.source_time_ms == ms == source_time(reader(time="at", time_unit=unit), one)


@pytest.mark.parametrize(
    ("unit", "sent"),
    [
        ("ms", "soon"),
        ("ms", True),
        ("s", [1]),
        ("ms", 10**30),
        ("ns", "NaN"),
        ("iso8601", 5),
        ("iso8601", "5pm"),
    ],
)
def test_a_time_that_is_none_is_refused(unit: str, sent: Any) -> None:
    one = record({"id": 1, "at": sent})
    with pytest.raises(UndecodableRecord, match=r"json\.time: at holds .*: no"):
        decode(one, time="at", time_unit=unit)
    assert source_time(reader(time="at", time_unit=unit), one) is None
