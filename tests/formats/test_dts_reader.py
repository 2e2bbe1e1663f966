"""DTS records read by hand, against the library's reader of Avro, and against what is no record at all."""

from __future__ import annotations

from typing import Any

import pytest
from captured import CapturedRecord
from dts_records import dts_stream, encode, record_fields, value
from dts_strategies import fields_of, read_by_library, records
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers import Change
from worker.formats.dts.format import DTS
from worker.formats.dts.record import RecordReader, read_header, routing_key
from worker.formats.interface import Skip, UndecodableRecord


def record(data: bytes | None) -> CapturedRecord:
    return CapturedRecord("dts", 0, 7, 1_763_000_000_000, None, data, [])


@settings(deadline=None)
@given(records())
def test_the_leading_fields_are_read_as_the_library_reads_them(fields: dict[str, Any]) -> None:
    data = encode(fields)
    header, there = read_header(data), read_by_library(data)
    assert header.source_time == there["sourceTimestamp"]
    assert header.transaction == there["sourceTxid"]
    assert header.source_type == there["source"]["sourceType"]
    assert header.operation == there["operation"]
    assert header.object_name == there["objectName"]


@settings(deadline=None)
@given(records(), records())
def test_two_records_have_one_routing_key_exactly_if_they_have_one_operation_and_name(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    for third in (other, {**other, "objectName": one["objectName"], "operation": one["operation"]}):
        same = all(one[field] == third[field] for field in ("operation", "objectName"))
        assert (routing_key(encode(one)) == routing_key(encode(third))) is same


@settings(deadline=None)
@given(records(), st.booleans())
def test_rows_are_read_as_the_library_reads_them(fields: dict[str, Any], is_old: bool) -> None:
    fields["tags"].pop("pk_uk_info", None)
    read = RecordReader().read(encode(fields, before_born_timestamp=is_old))
    there = read_by_library(encode(fields))
    names = [field["name"] for field in there["fields"]]
    assert read.before == fields_of(there["beforeImages"], names)
    assert read.after == fields_of(there["afterImages"], names)


@settings(deadline=None)
@given(records(), st.data())
def test_a_record_that_ends_anywhere_in_the_middle_is_refused(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    whole = encode(fields, before_born_timestamp=True)
    for _ in range(5):
        end = data.draw(st.integers(0, len(whole) - 1))
        with pytest.raises(ValueError, match=r"."):
            RecordReader().read(whole[:end])


def test_older_records_and_newer_ones_are_told_apart_by_where_they_end() -> None:
    whole, older = encode(record_fields()), encode(record_fields(), before_born_timestamp=True)
    assert whole.startswith(older)
    assert len(whole) > len(older)
    assert RecordReader().read(whole).after == RecordReader().read(older).after == {"id": 7, "note": "seven"}
    for data in (whole + b"\2", older + b"\x80", whole + b"\0\0"):
        with pytest.raises(ValueError, match=r"too many|is cut off"):
            RecordReader().read(data)


def test_arrays_in_several_blocks_are_read_whole() -> None:
    # Avro's writers may cut an array into blocks, and give a block's size behind a negative count.
    data = encode(record_fields(afterImages=None), before_born_timestamp=True)
    first, second = b"\2\x10\0027", b"\4\x0eutf8mb4\x0aseven"
    for image in (
        b"\4" + b"\4" + first + second + b"\0",
        b"\4" + b"\2" + first + b"\2" + second + b"\0",
        b"\4" + b"\1" + bytes([2 * len(first)]) + first + b"\1" + bytes([2 * len(second)]) + second + b"\0",
    ):
        assert RecordReader().read(data[:-1] + image).after == {"id": 7, "note": "seven"}


@pytest.mark.parametrize("operation", ["INSERT", "DDL", "BEGIN", "HEARTBEAT"])
@settings(deadline=None)
@given(st.data())
def test_damage_gives_a_change_or_says_what_is_wrong(operation: str, data: st.DataObject) -> None:
    sql = "ALTER TABLE orders ADD x int"
    whole = bytearray(
        encode(record_fields(operation=operation, **({"afterImages": sql} if operation == "DDL" else {})))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(whole))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_skip_or_say_what_is_wrong(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    format_, changes = DTS(), list[Change]()
    route = format_.route(data)
    try:
        found = format_.explain(record(data))
    except UndecodableRecord:
        assert not route.table
        return
    if isinstance(found, Skip):
        assert not route.table
        return
    assert (route.database, route.table, route.alone) == (found.database, found.table, found.alone)
    try:
        format_.decode(record(data), changes)
    except UndecodableRecord:
        assert changes == []


def test_what_a_record_is_does_not_depend_on_those_read_before_it() -> None:
    practised = DTS()
    for item in dts_stream():
        fresh = DTS()
        alone, after_others = list[Change](), list[Change]()
        fresh.decode(item, alone)
        practised.decode(item, after_others)
        assert [(c.op, c.before, c.after, c.key, c.sql) for c in alone] == [
            (c.op, c.before, c.after, c.key, c.sql) for c in after_others
        ]
        assert practised.route(item.value() or b"") == fresh.route(item.value() or b"")


def test_columns_that_change_between_two_records_are_read_by_their_own_types() -> None:
    reader = RecordReader()
    fields = [{"name": "id", "dataTypeNumber": 8}, {"name": "note", "dataTypeNumber": 245}]
    note = value("Character", charset="utf8mb4", value=b'{"a": 1}')
    image = [value("Integer", precision=8, value="7"), note]
    for _ in range(2):
        assert reader.read(encode(record_fields(afterImages=image))).after == {"id": 7, "note": '{"a": 1}'}
        assert reader.read(encode(record_fields(fields=fields, afterImages=image))).after == {
            "id": 7,
            "note": '{"a":1}',
        }
