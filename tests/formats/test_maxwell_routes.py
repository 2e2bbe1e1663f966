"""Where Maxwell's records belong, and what is said of those that belong nowhere."""

from __future__ import annotations

import json

import pytest
from captured import CapturedRecord
from hypothesis import example, given
from hypothesis import strategies as st
from maxwell_messages import ORDERS, PRACTICE, ddl, decode, knowing, raw, row

from handlers import Change
from worker.formats.decoding import source_time
from worker.formats.interface import LogPosition, SeparateDDL, Skip, UndecodableRecord
from worker.formats.maxwell.format import Maxwell


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (raw(None), "tombstone"),
        (row(type="bootstrap-start", data={}, primary_key_columns=["id"]), "bootstrap"),
        (row(type="bootstrap-complete", data={}), "bootstrap"),
        (row(type="heartbeat", data={}), "heartbeat"),
        (ddl("database-create", "CREATE DATABASE x", table=...), "database_ddl"),
        (ddl("database-alter", "ALTER DATABASE x", table=...), "database_ddl"),
        (ddl("database-drop", "DROP DATABASE x", table=...), "database_ddl"),
    ],
)
def test_a_record_of_no_row_is_skipped_with_its_reason(record: CapturedRecord, reason: str) -> None:
    format_ = Maxwell()
    assert format_.explain(record) == Skip(reason)
    assert decode(record, format_) == []
    if record.value() is not None:
        with pytest.raises(ValueError, match=r"."):
            format_.route(record.value() or b"")


@pytest.mark.parametrize("type_", ["insert", "update", "delete", "bootstrap-insert"])
def test_a_row_routes_to_its_table(type_: str) -> None:
    record = row(type=type_, table="订单")
    for route in (Maxwell().route(record.value() or b""), Maxwell().explain(record)):
        assert not isinstance(route, Skip)
        assert (route.database, route.table, route.alone) == ("shop", "订单", False)


def test_the_time_of_a_record_is_that_of_its_event() -> None:
    """In seconds of a row, in milliseconds of DDL."""
    assert source_time(Maxwell(), row()) == 1763000000000
    assert source_time(Maxwell(), ORDERS) == 1763000000999
    assert source_time(Maxwell(), raw(None)) is None
    assert source_time(Maxwell(), raw(b"broken")) is None


def test_a_place_is_the_binlog_files_number_and_the_position_in_it() -> None:
    format_ = Maxwell()
    assert isinstance(format_, SeparateDDL)
    assert format_.log_position(row()) == LogPosition("maxwell", (2, 500), barrier=False)
    assert format_.log_position(ORDERS) == LogPosition("maxwell", (1, 4), barrier=True)
    later = row(position="my.server-bin.000010:4")
    assert format_.log_position(later) == LogPosition("maxwell", (10, 4), barrier=False)
    assert format_.log_position(row(position=...)) == LogPosition("maxwell", (), barrier=False)
    assert format_.log_position(row(position="0-1-2")) == LogPosition("maxwell", (), barrier=False)
    for record in (raw(None), raw(b"broken"), row(type="bootstrap-start"), row(type=...)):
        assert format_.log_position(record) is None


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (raw(b""), "the value is empty"),
        (raw(b"not json"), "not a Maxwell record: JSON is malformed"),
        (raw(b"\xff\xfe"), "not a Maxwell record"),
        (raw(b'["shop"]'), "Expected `object`, got `array`"),
        (raw(b'{"x":' + b"[" * 100_000), "nested too deeply"),
        (row(type="truncate"), "not a Maxwell record: type 'truncate'"),
        (row(type=...), "missing required field `type`"),
        (row(ts="now"), r"Expected `int`, got `str` - at `\$.ts`"),
        (raw(b'{"encrypted": {"iv": "x", "bytes": "y"}}'), "encrypted; set Maxwell's encrypt = none"),
    ],
)
def test_what_is_no_record_says_what_is_wrong(record: CapturedRecord, said: str) -> None:
    with pytest.raises(UndecodableRecord, match=said):
        Maxwell().explain(record)
    with pytest.raises(UndecodableRecord, match=said):
        decode(record)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (row(data=...), "missing required field `data`"),
        (row(data=None), "Expected `object`, got `null`"),
        (row(data=..., encrypted={"iv": "x"}), "encrypted"),
        (row(type="update", old=5), "Expected `object | null`, got `int`"),
        (
            row(reason="RecordTooLargeException", data={"id": 7}),
            "Maxwell could not write this row: RecordToo",
        ),
    ],
)
@pytest.mark.parametrize("times", [0, PRACTICE])
def test_a_row_that_cannot_be_read_says_why_and_appends_nothing(
    record: CapturedRecord, said: str, times: int
) -> None:
    format_ = Maxwell()
    for _ in range(times):
        decode(row(), format_)
    changes: list[Change] = []
    with pytest.raises(UndecodableRecord, match=said):
        format_.decode(record, changes)
    assert changes == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
near_misses = st.fixed_dictionaries(
    {},
    optional={
        "database": st.just("shop") | json_values,
        "table": st.just("orders") | json_values,
        "type": st.sampled_from(
            ["insert", "update", "delete", "table-alter", "table-create", "table-drop", "bootstrap-insert"]
        )
        | json_values,
        "ts": st.integers() | json_values,
        "position": st.just("b.1:2") | json_values,
        "data": st.just({"id": 1, "total": 2, "note": "x"}) | json_values,
        "old": json_values,
        "def": json_values,
        "sql": json_values,
        "primary_key_columns": st.just(["id"]) | json_values,
    },
).map(lambda value: json.dumps(value).encode())


@given(st.binary(max_size=60) | near_misses | json_values.map(lambda value: json.dumps(value).encode()))
@example(b'{"type":"insert","ts":1,"database":"shop","table":"orders","data":{"x":1e99999999999999999999}}')
@example(b'{"type":"insert","ts":' + b"9" * 5000 + b',"database":"shop","table":"orders","data":{}}')
def test_garbage_raises_only_what_says_so(value: bytes) -> None:
    format_ = knowing(ORDERS)
    for _ in range(2):
        record = raw(value, value)
        format_.log_position(record)
        source_time(format_, record)
        format_.learn(record)
        changes: list[Change] = []
        try:
            format_.explain(record)
            format_.decode(record, changes)
        except UndecodableRecord:
            assert changes == []
        for _ in range(PRACTICE):
            decode(row(), format_)
