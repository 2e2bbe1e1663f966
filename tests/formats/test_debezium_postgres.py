"""What is PostgreSQL's own: values that its log lacks, keys that it does not tell, types of its own."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from captured import CapturedRecord
from debezium_columns import DECIMAL, POSTGRESQL, assert_same, b64
from debezium_messages import change_of, connect, envelope, record, row_of, with_schema

from handlers import BeyondCalendar, Change
from handlers.values.native_types import NativeTypes
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import UndecodableRecord

UNAVAILABLE = "__debezium_unavailable_value"
KEY = {"id": 7}
NO_UUID = "00000000-0000-0000-0000-000000000000"


def reader(**settings: Any) -> Debezium:
    return Debezium(DebeziumSettings.model_validate(settings))


# ---- values that the log lacks


@pytest.mark.parametrize(
    "placeholder",
    [
        UNAVAILABLE,
        b64(UNAVAILABLE.encode()),
        UNAVAILABLE.encode().hex(),
        [UNAVAILABLE],
        [b64(UNAVAILABLE.encode())],
        [UNAVAILABLE.encode().hex()],
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        list(UNAVAILABLE.encode()),
        {UNAVAILABLE: UNAVAILABLE},
        f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}',
    ],
)
@pytest.mark.parametrize(
    "how", ["enveloped", "told in the record", "told in a header", "told by the section"]
)
def test_the_placeholder_of_a_value_that_did_not_change_is_no_value(placeholder: Any, how: str) -> None:
    row = {"id": 7, "c": placeholder}
    signs = {"__op": "u", "__schema": "public", "__table": "orders"}
    format_ = Debezium()
    match how:
        case "enveloped":
            one = record(envelope("u", after=row, at=POSTGRESQL), KEY)
        case "told in the record":
            one = record(row | signs | {"__source_connector": "postgresql"}, KEY)
        case "told in a header":
            headers = (("__debezium.context.connectorName", "postgresql"),)
            one = record(row | signs, KEY, headers=headers)
        case _:
            one = record(row | signs, KEY)
            format_ = reader(source="postgresql")
    for _ in range(70):
        assert change_of(one, format_).after == KEY


def test_a_null_that_means_unchanged_is_no_value_where_the_configuration_says_so() -> None:
    """Debezium sends NULL for an unchanged smallint[], and nothing tells it from a real one."""
    format_ = reader(keep_if_null={"shop*.orders": ["c", "d"]})
    at = {**POSTGRESQL, "schema": "shop", "table": "orders"}

    def after(op: str, row: dict[str, Any]) -> Any:
        return change_of(record(envelope(op, after=row, at=at), KEY), format_).after

    assert after("u", {"id": 7, "c": None, "d": 1, "e": None}) == {"id": 7, "d": 1, "e": None}
    assert after("c", {"id": 7, "c": None}) == {"id": 7, "c": None}
    flat = record(
        {
            "id": 7,
            "c": None,
            "__op": "u",
            "__schema": "shop",
            "__table": "orders",
            "__source_connector": "postgresql",
        },
        KEY,
    )
    assert change_of(flat, format_).after == {"id": 7}
    other = {**at, "schema": "crm"}
    assert change_of(record(envelope("u", after={"id": 7, "c": None}, at=other), KEY), format_).after == {
        "id": 7,
        "c": None,
    }


# ---- keys

POINT = {"x": 0.0, "y": 0.0, "wkb": "AQEAAAAAAAAAAAAAAAAAAAAAAAAA", "srid": None}


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize(
    ("key", "before", "is_told"),
    [
        ({"id": 0}, {"id": 0, "code": "c3"}, False),
        ({"id": 0}, {"id": 0, "code": "c3", "n": None}, False),
        ({"id": NO_UUID}, {"id": NO_UUID, "n": 1}, False),
        ({"id": "", "b": False}, {"id": "", "b": False, "n": 1}, False),
        ({"id": 0}, {"id": 0, "code": "", "n": None, "at": "1970-01-01T00:00:00Z"}, True),
        ({"id": 0}, {"id": 0}, True),
        ({"id": 0, "line": 1}, {"id": 0, "line": 1, "code": "c3"}, True),
        ({"id": "0"}, {"id": "0", "code": "c3"}, False),
        ({"id": 7}, {"id": 7, "code": "c3"}, True),
        (None, {"id": 0, "code": "c3"}, True),
    ],
)
def test_a_delete_whose_key_is_not_told_is_refused(
    key: Any, before: dict[str, Any], is_told: bool, is_flat: bool
) -> None:
    """REPLICA IDENTITY USING INDEX beside a primary key: the row 0 would be deleted."""
    one = record(envelope("d", before=before, at={**POSTGRESQL, "schema": "public"}), key)
    if is_flat:
        signs = {"__deleted": "true", "__schema": "public", "__table": "orders"}
        one = record(before | signs | {"__source_connector": "postgresql"}, key)
    if not is_told:
        with pytest.raises(UndecodableRecord, match="REPLICA IDENTITY USING INDEX"):
            change_of(one)
    found = change_of(one, reader(zero_keys=["public.*"]) if not is_told else Debezium())
    told = {"id": 0} if "at" in before else before  # what the connector fills in is left out
    assert (found.op, found.before, found.before_is_whole) == (
        "delete",
        told,
        told.keys() != (key or {}).keys(),
    )


def test_a_point_that_the_connector_fills_in_is_not_told() -> None:
    columns = {"id": connect("int32"), "place": connect("struct", "data.geometry.Point")}
    message = envelope("d", before={"id": 7, "place": POINT}, at={**POSTGRESQL, "schema": "public"})
    assert change_of(record(with_schema(message, columns), {"id": 7})).before == {"id": 7}


def test_what_a_column_holds_by_default_is_not_told() -> None:
    """Under REPLICA IDENTITY DEFAULT the connector fills columns that are NOT NULL with their defaults."""
    columns = {"id": connect("int32"), "note": connect("string") | {"default": "x"}}
    at = {**POSTGRESQL, "schema": "public"}

    def deleted(note: str) -> Any:
        message = envelope("d", before={"id": 0, "note": note}, at=at)
        return change_of(record(with_schema(message, columns), {"id": 0})).before

    assert deleted("x") == {"id": 0}
    with pytest.raises(UndecodableRecord, match="REPLICA IDENTITY USING INDEX"):
        deleted("y")


@pytest.mark.parametrize(
    ("before", "is_whole"),
    [
        ({"id": 34, "name": "", "email": None, "active": True, "at": "1970-01-01T00:00:00Z"}, False),
        ({"id": 1306, "acct": 0, "balance": "AA=="}, False),
        # decimal.handling.mode and interval.handling.mode string, time.precision.mode isostring
        ({"id": 7, "total": "0.00", "n": "0", "age": "P0Y0M0DT0H0M0S", "day": "1970-01-01Z"}, False),
        ({"id": 7, "tags": "{}", "tz": "00:00:00Z", "place": POINT}, False),
        ({"id": "0", "note": None}, False),
        ({"id": 7, "total": "0.10"}, True),
        ({"id": 7, "acct": 0, "note": "x"}, True),
    ],
)
def test_what_the_connector_fills_in_is_no_value_of_a_deleted_row(
    before: dict[str, Any], is_whole: bool
) -> None:
    found = change_of(record(envelope("d", before=before, at={**POSTGRESQL, "schema": "public"}), {"id": 1}))
    assert found.before_is_whole is is_whole
    assert found.before == (before if is_whole else {"id": before["id"]})


FAR = [
    (connect("int64", "time.MicroTimestamp"), 9223372036825200000, "infinity"),
    (connect("int64", "time.MicroTimestamp"), -9223372036832400000, "-infinity"),
    (connect("int64", "time.MicroTimestamp"), -63517780800000000, "0044-03-15 12:00:00 BC"),
    (connect("int64", "time.Timestamp"), 9223372036825200, "infinity"),
    (connect("int64", "time.Timestamp"), 253402300800001, "10000-01-01 00:00:00.001000"),
    # In the stream, and in the snapshot.
    (connect("int32", "time.Date"), -2147472692, "infinity"),
    (connect("int32", "time.Date"), -622191234, "infinity"),
    (connect("int32", "time.Date"), -2147472691, "-infinity"),
    (connect("int32", "time.Date"), -625821272, "-infinity"),
    (connect("int32", "time.Date"), 2145042905, "5874897-12-31"),
    (connect("int32", "time.Date"), -735160, "0044-03-15 BC"),
    (connect("string", "time.ZonedTimestamp"), "-infinity", "-infinity"),
    (connect("string", "time.ZonedTimestamp"), "+20000-01-01T00:00:00.5Z", "20000-01-01 00:00:00.500000+00"),
    (connect("string", "time.ZonedTimestamp"), "-0043-03-15T12:00:00Z", "0044-03-15 12:00:00+00 BC"),
    (connect("string", "time.ZonedTimestamp"), "+10000-01-01T00:00:00-05:00", "10000-01-01 05:00:00+00"),
]


@pytest.mark.parametrize(("schema", "value", "expected"), FAR)
def test_a_time_beyond_the_calendar_is_told(schema: dict[str, Any], value: Any, expected: str) -> None:
    columns = {"t": schema, "u": schema, "a": {"type": "array", "items": schema}}
    row = {"t": value, "u": value, "a": [value, None]}
    message = envelope("u", before=row, after=row, at=POSTGRESQL)
    far = BeyondCalendar(expected)
    format_, none_ = Debezium(), reader(null_beyond_calendar=["/.*/"])
    for _ in range(70):
        change = change_of(record(with_schema(message, columns), {"t": value}), format_)
        assert change.after == change.before == {"t": far, "u": far, "a": [far, None]}
        assert str(change.after["t"]) == expected
    if "infinity" in expected:  # in a key there is no NULL
        change = change_of(record(with_schema(message, columns), {"t": value}), none_)
        assert change.after == {"t": expected, "u": None, "a": [None, None]}
    else:
        with pytest.raises(UndecodableRecord, match=r"column 't' of the key: .* is beyond the years"):
            change_of(record(with_schema(message, columns), {"t": value}), none_)


@pytest.mark.parametrize(
    ("schema", "value", "native"),
    [
        # time.precision.mode connect, isostring and nanoseconds, each beside the default.
        (connect("int32", "time.Date"), 1, "date[]"),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, 1, "date[]"),
        (connect("string", "time.IsoDate"), "1970-01-02Z", "date[]"),
        ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, 1, "timestamp[]"),
        (connect("int64", "time.NanoTimestamp"), 1_000, "timestamp[]"),
        (connect("string", "time.IsoTimestamp"), "1970-01-02T00:00:00Z", "timestamp[]"),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}, 1, "time[]"),
    ],
)
def test_an_array_of_times_is_one_by_any_precision(schema: dict[str, Any], value: Any, native: str) -> None:
    message = envelope(after={"a": [value]}, at=POSTGRESQL)
    change = change_of(record(with_schema(message, {"a": {"type": "array", "items": schema}})))
    assert isinstance(change.types, NativeTypes)
    assert change.types.native == {"a": native}
    assert isinstance(change.after["a"][0], date | timedelta)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (connect("int64", "time.MicroTimestamp"), -9223372036853775810),
        (connect("int32", "time.Date"), -700000000),
    ],
)
def test_a_time_that_the_connector_lost_is_an_error(schema: dict[str, Any], value: int) -> None:
    """294276-12-31 23:59:59.999999 does not fit into its microseconds."""
    one = record(with_schema(envelope(after={"t": value}, at=POSTGRESQL), {"t": schema}))
    with pytest.raises(
        UndecodableRecord, match=f"column 't' of type .* holds {value}: beyond PostgreSQL's calendar"
    ):
        change_of(one)
    none_ = reader(null_beyond_calendar=["/.*/"])
    assert change_of(one, none_).after == {"t": None}
    keyed = record(one.value_, {"t": value})
    with pytest.raises(UndecodableRecord, match="column 't' of the key: it is beyond the years 1 to 9999"):
        change_of(keyed, none_)


def test_mysql_has_no_time_beyond_the_calendar() -> None:
    """Its year 0 is a zero date."""
    columns = {"d": connect("int32", "time.Date"), "t": connect("string", "time.ZonedTimestamp")}
    row = {"d": -719528, "t": "0000-12-31T00:00:00Z"}
    assert row_of(record(with_schema(envelope(after=row), columns))) == {"d": None, "t": None}


# ---- changes of keys


def deleted_and_made(is_flat: bool, old: Any, new: Any) -> list[CapturedRecord]:
    """As Debezium writes a change of a key, without what stayed as it was."""
    at = {**POSTGRESQL, "schema": "public"}
    row = {"id": new, "note": "n", "t": UNAVAILABLE}
    signs = {"__schema": "public", "__table": "orders", "__source_connector": "postgresql"}
    gone: Any = envelope("d", before={"id": old, "note": None}, at=at)
    made: Any = envelope("c", after=row, at=at)
    if is_flat:
        gone = {"id": old, "note": None, "__deleted": "true", **signs}
        made = row | {"__op": "c", **signs}
    to, from_ = json.dumps({"id": new}), json.dumps({"schema": {}, "payload": {"id": old}})
    return [
        record(gone, {"id": old}, headers=(("__debezium.newkey", to),)),
        record(made, {"id": new}, headers=(("__debezium.oldkey", from_),)),
    ]


def changes_of(records: list[CapturedRecord], format_: Debezium) -> list[tuple[Any, ...]]:
    found: list[Change] = []
    for one in records:
        format_.decode(one, found)
    for change in found:
        assert change.moves_key
        assert change.lacks == ({"t"} if change.op == "insert" else set())
    return [(change.op, change.before, change.after, change.index) for change in found]


@pytest.mark.parametrize("is_flat", [False, True])
def test_a_change_of_a_key_is_one_records_where_records_come_in_order(is_flat: bool) -> None:
    """So a handler finds in the row under its old key what the log does not hold."""
    apart = [("delete", {"id": 7}, None, 0), ("insert", None, {"id": 8, "note": "n"}, 0)]
    records = deleted_and_made(is_flat, 7, 8)
    assert changes_of(records, Debezium()) == changes_of(records, reader(ordered=False)) == apart
    together = [("delete", {"id": 7}, None, 0), ("insert", None, {"id": 8, "note": "n"}, 1)]
    format_ = reader(ordered=True)
    for _ in range(70):
        assert changes_of(records, format_) == together


def test_a_change_of_a_key_that_may_not_be_told_is_left_as_it_is() -> None:
    records = deleted_and_made(False, 0, 8)
    apart = [("delete", {"id": 0}, None, 0), ("insert", None, {"id": 8, "note": "n"}, 0)]
    assert changes_of(records, reader(ordered=True)) == apart
    known = reader(ordered=True, zero_keys=["public.orders"])
    assert [one[0] for one in changes_of(records[:1], known)] == []
    assert [one[:2] for one in changes_of(records[1:], known)] == [("delete", {"id": 0}), ("insert", None)]


# ---- types


def numeric(precision: int, scale: int) -> dict[str, Any]:
    return connect("bytes", DECIMAL, **{"scale": str(scale), "connect.decimal.precision": str(precision)})


@pytest.mark.parametrize(
    ("schema", "value", "expected", "type_text"),
    [
        (numeric(3, 5), "ew==", Decimal("0.00123"), "decimal(5,5)"),
        (numeric(5, 2046), b64((100 * 10**2046).to_bytes(860, "big")), Decimal(100), "decimal(7,0)"),
        (connect("bytes", "data.Bits", length="20"), "//8P", 0xFFFFF, "bit(20)"),
        (connect("bytes", "data.Bits", length="64"), "AAAAAAAAAIA=", 1 << 63, "bit(64)"),
        (connect("bytes", "data.Bits", length="100000"), "AQI=", b"\1\2", "longblob"),
        (connect("bytes", "data.Bits", length="2147483647"), "", b"", "longblob"),
        ({"type": "array", "items": connect("bytes")}, ["3q0=", "", None], [b"\xde\xad", b"", None], "json"),
        ({"type": "array", "items": connect("double")}, ["NaN", 0.5], [float("nan"), 0.5], "json"),
    ],
)
def test_types_of_postgresql_alone(
    schema: dict[str, Any], value: Any, expected: Any, type_text: str | None
) -> None:
    one = record(with_schema(envelope(after={"c": value}, at=POSTGRESQL), {"c": schema}))
    assert_same(row_of(one)["c"], expected)
    assert (change_of(one).types or {}).get("c") == type_text


@pytest.mark.parametrize(
    ("type_text", "value", "expected", "told"),
    [
        ("numeric(12,2)", "AJY=", Decimal("1.50"), "decimal(12,2)"),
        ("numeric(12,2)", "1.50", Decimal("1.50"), "decimal(12,2)"),
        ("numeric(12,2)", 1.5, Decimal("1.5"), "decimal(12,2)"),
        ("numeric", {"scale": 3, "value": "BQ=="}, Decimal("0.005"), "decimal"),
        ("money", "Cg==", Decimal("0.10"), "decimal(19,2)"),
        ("real", 0.1, 0.10000000149011612, "float"),
        ("double precision", "NaN", float("nan"), "double"),
        ("bytea", "AP8=", b"\0\xff", "longblob"),
        ("bit(1)", True, 1, "bit(1)"),
        ("bit(8)", "/w==", 255, "bit(8)"),
        ("date", 19782, date(2024, 2, 29), "date"),
        ("timestamp(3) without time zone", 1001, datetime(1970, 1, 1, 0, 0, 1, 1000), "datetime(3)"),
        ("timestamp", 1001, datetime(1970, 1, 1, 0, 0, 0, 1001), "datetime(6)"),
        ("timestamptz", "1970-01-01T00:00:01Z", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "timestamp(6)"),
        ("time(0) without time zone", 1000, timedelta(seconds=1), "time(0)"),
        ("time", 1000, timedelta(milliseconds=1), "time(6)"),
        ("interval day to second(3)", 90000000000, timedelta(hours=25), "interval"),
        ("character varying(10)", "a", "a", "varchar(10)"),
        ("jsonb", '{"a": 1}', '{"a":1}', "json"),
        ("uuid", "a", "a", "uuid"),
        ("timestamp[]", [1001, None], [datetime(1970, 1, 1, 0, 0, 0, 1001), None], "json"),
        ("numeric(10,2)[]", ["AJY="], [Decimal("1.50")], "json"),
        ("bytea[]", ["AP8="], [b"\0\xff"], "json"),
    ],
)
def test_the_configuration_tells_the_types_of_records_without_schemas(
    type_text: str, value: Any, expected: Any, told: str | None
) -> None:
    format_ = reader(columns={"public.*": {"c": type_text}})
    one = record(envelope(after={"c": value}, at={**POSTGRESQL, "schema": "public"}))
    assert_same(row_of(one, format_)["c"], expected)
    assert (change_of(one, format_).types or {}).get("c") == told
    other = record(envelope(after={"c": value}, at={**POSTGRESQL, "schema": "crm"}))
    assert_same((change_of(other, format_).after or {})["c"], value)


@pytest.mark.parametrize("place", ["column", "key"])
def test_hexadecimal_text_is_bytes_where_the_configuration_tells_the_type(place: str) -> None:
    """`binary.handling.mode=hex`: the schema says no more than that it is text."""
    format_ = reader(columns={"public.orders": {"c": "bytea"}}, binary="hex")
    message = envelope("u", after={"c": "00ff"}, at={**POSTGRESQL, "schema": "public"})
    one = record(with_schema(message, {"c": connect("string")}), {"c": "00ff"} if place == "key" else None)
    change = change_of(one, format_)
    assert change.after == {"c": b"\0\xff"}
    assert change.types == {"c": "longblob"}


def test_a_column_that_two_patterns_name_has_the_type_of_the_first() -> None:
    format_ = reader(columns={"public.orders": {"c": "bytea"}, "public.*": {"c": "text", "d": "date"}})
    message = envelope(
        after={"c": base64.b64encode(b"a").decode(), "d": 0}, at={**POSTGRESQL, "schema": "public"}
    )
    assert change_of(record(message), format_).after == {"c": b"a", "d": date(1970, 1, 1)}


def test_an_interval_as_text_without_a_schema_stays_the_text() -> None:
    format_ = reader(columns={"*.*": {"c": "interval"}})
    text = "P1Y2M3DT4H5M6.5S"
    assert row_of(record(envelope(after={"c": text, "d": 1}, at=POSTGRESQL)), format_)["c"] == text
    with pytest.raises(UndecodableRecord, match="no interval"):
        row_of(record(envelope(after={"c": "1 mon"}, at=POSTGRESQL)), format_)
