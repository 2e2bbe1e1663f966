"""Values of Debezium's rows: by their schema, by the table's definition, by both, and by neither."""

from __future__ import annotations

import base64
import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from debezium_columns import DECIMAL, WKB, assert_same, b64, value_of
from debezium_messages import change_of, connect, create, envelope, record, row_of, with_schema

from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import UndecodableRecord


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (connect("int16"), -32768, -32768),
        (connect("int64"), 9223372036854775807, 9223372036854775807),
        (connect("boolean"), True, 1),
        (connect("float"), 0.1, 0.10000000149011612),
        (connect("float"), 3.4e38, 3.3999999521443642e38),
        (connect("double"), 0.1, 0.1),
        (connect("double"), "NaN", float("nan")),
        (connect("double"), 3, 3.0),
        (connect("string"), "\U0001f600", "\U0001f600"),
        (connect("bytes"), "/wA=", b"\xff\0"),
        (connect("bytes", DECIMAL, scale="2"), "/av0HAE=", Decimal("-99999999.99")),
        (connect("bytes", DECIMAL, scale="2"), "AA==", Decimal("0.00")),
        (connect("bytes", DECIMAL, scale="0"), "AP//////////", Decimal(18446744073709551615)),
        (connect("bytes", "data.Bits", length="64"), "dCrmzwP5kkU=", 0x4592F903CFE62A74),
        (connect("int32", "time.Date"), -354285, date(1000, 1, 1)),
        (connect("int32", "time.Date"), 2932896, date(9999, 12, 31)),
        (connect("int32", "time.Date"), 2932897, None),
        (connect("int32", "time.Date"), 2147483647, None),
        (connect("int64", "time.Timestamp"), -1, datetime(1969, 12, 31, 23, 59, 59, 999000)),
        (
            connect("int64", "time.MicroTimestamp"),
            253402300799999999,
            datetime(9999, 12, 31, 23, 59, 59, 999999),
        ),
        (connect("int64", "time.MicroTimestamp"), 9223372036825200000, None),
        (connect("int64", "time.NanoTimestamp"), 1_000, datetime(1970, 1, 1, 0, 0, 0, 1)),
        (connect("int32", "time.Time"), 80832344, timedelta(seconds=80832, milliseconds=344)),
        (connect("int64", "time.MicroTime"), -3020399000000, -timedelta(hours=838, minutes=59, seconds=59)),
        (connect("int64", "time.NanoTime"), 1_000, timedelta(microseconds=1)),
        (connect("int64", "time.MicroDuration"), 90_000_000, timedelta(seconds=90)),
        (connect("string", "time.Interval"), "P1Y2M3DT4H5M6S", "P1Y2M3DT4H5M6S"),
        (
            connect("string", "time.ZonedTimestamp"),
            "2038-01-19T03:14:07.999Z",
            datetime(2038, 1, 19, 3, 14, 7, 999000, tzinfo=UTC),
        ),
        (
            connect("string", "time.ZonedTimestamp"),
            "2038-01-19T03:14:07+02:00",
            datetime(2038, 1, 19, 1, 14, 7, tzinfo=UTC),
        ),
        (connect("string", "time.ZonedTimestamp"), "+12022-01-01T00:00:00Z", None),
        (connect("string", "time.ZonedTimestamp"), "infinity", None),
        # A converter or a transform of the connector may leave out the zone.
        (
            connect("string", "time.ZonedTimestamp"),
            "2038-01-19T03:14:07.5",
            datetime(2038, 1, 19, 3, 14, 7, 500_000, tzinfo=UTC),
        ),
        (connect("string", "time.ZonedTimestamp"), "1970-01-01T00:00:00", None),
        (connect("string", "time.ZonedTime"), "23:59:59.5Z", timedelta(hours=23, minutes=59, seconds=59.5)),
        (connect("string", "time.ZonedTime"), "01:00:00+02:00", timedelta(hours=23)),
        (connect("int32", "time.Year"), 2155, 2155),
        (connect("string", "time.IsoDate"), "2020-02-29Z", date(2020, 2, 29)),
        (connect("string", "time.IsoTimestamp"), "2020-02-29T10:00:00Z", datetime(2020, 2, 29, 10)),
        (connect("string", "time.IsoTime"), "10:00:00Z", timedelta(hours=10)),
        (connect("int32", "org.apache.kafka.connect.data.Date"), 1, date(1970, 1, 2)),
        (connect("int32", "org.apache.kafka.connect.data.Time"), 1, timedelta(milliseconds=1)),
        (
            connect("int64", "org.apache.kafka.connect.data.Timestamp"),
            -30610224000000,
            datetime(1000, 1, 1),
        ),
        (
            connect("struct", "data.VariableScaleDecimal"),
            {"scale": 3, "value": "AeI="},
            Decimal("0.482"),
        ),
        (
            connect("struct", "data.VariableScaleDecimal"),
            {"scale": -2, "value": "Bw=="},
            Decimal("7E+2"),
        ),
        (connect("string", "data.Enum", allowed="small,x\\,l"), "small", "small"),
        (connect("string", "data.Enum", allowed="small,x\\,l"), "x\\,l", "x,l"),
        (connect("string", "data.Enum", allowed="small,x\\,l"), "x,l", "x,l"),
        (connect("string", "data.Enum", allowed="small,x\\,l"), "", ""),
        (connect("string", "data.EnumSet", allowed="d,c,b"), "b,d", ("d", "b")),
        (connect("string", "data.EnumSet", allowed="d,c,b"), "", ()),
        (connect("string", "data.Json"), '{"b": 1.0, "a" :"x y"}', '{"b":1.0,"a":"x y"}'),
        (connect("string", "data.Json"), '{"b":1.0}', '{"b":1.0}'),
        (connect("string", "data.Json"), "{no json }", "{no json }"),
        (connect("string", "data.Xml"), "<a> </a>", "<a> </a>"),
        (connect("string", "data.Uuid"), "a0ee", "a0ee"),
        (
            connect("struct", "data.geometry.Point"),
            {"x": 1.0, "y": 2.0, "wkb": b64(WKB), "srid": 4326},
            bytes.fromhex("e6100000") + WKB,
        ),
        (connect("struct", "data.geometry.Geometry"), {"wkb": b64(WKB), "srid": None}, bytes(4) + WKB),
        (  # PostGIS writes the SRID into the WKB, too
            connect("struct", "data.geometry.Geometry"),
            {"wkb": b64(bytes.fromhex("0101000020e6100000") + WKB[5:]), "srid": 4326},
            b"\xe6\x10\0\0" + WKB,
        ),
        (
            connect("struct", "data.geometry.Geography"),
            {"wkb": b64(bytes.fromhex("0020000001000010e6") + WKB[5:]), "srid": 4326},
            bytes.fromhex("e61000000000000001") + WKB[5:],
        ),
        ({"type": "array", "items": connect("int32")}, [1, None, 3], [1, None, 3]),
        ({"type": "array", "items": connect("int32", "time.Date")}, [1, None], [date(1970, 1, 2), None]),
        ({"type": "map"}, {"a": "1"}, {"a": "1"}),
    ],
)
def test_a_value_is_read_by_its_schema(schema: dict[str, Any], value: Any, expected: Any) -> None:
    assert_same(value_of(value, schema), expected)
    assert value_of(None, schema) is None


@pytest.mark.parametrize(
    ("known", "value", "expected"),
    [
        ("TINYINT", -1, -1),
        ("TINYINT", True, 1),
        ("BIGINT UNSIGNED", -1, 18446744073709551615),
        ("BIGINT UNSIGNED", "AP//////////", 18446744073709551615),
        (("BIT", 1), True, 1),
        (("BIT", 9), "AQE=", 257),
        (("DECIMAL", 10, 2), "/av0HAE=", Decimal("-99999999.99")),
        (("DECIMAL", 10, 2), "-99999999.99", Decimal("-99999999.99")),
        (("DECIMAL", 10, 2), 9061.0, Decimal("9061.00")),
        (("DECIMAL", 10, 2), 9061, Decimal("9061.00")),
        (("DECIMAL UNSIGNED", 20, 0), "18446744073709551615", Decimal(18446744073709551615)),
        (("DECIMAL", 20, 0), "-5", Decimal(-5)),
        (("DECIMAL", 20, 0), "Bw==", Decimal(7)),
        ("FLOAT", 0.1, 0.10000000149011612),
        (("FLOAT", 30), 0.1, 0.1),
        ("DOUBLE", 1, 1.0),
        ("DATE", 19782, date(2024, 2, 29)),
        ("DATE", "2024-02-29Z", date(2024, 2, 29)),
        ("DATETIME", 1000, datetime(1970, 1, 1, 0, 0, 1)),
        (("DATETIME", 3), 1001, datetime(1970, 1, 1, 0, 0, 1, 1000)),
        (("DATETIME", 4), 1001, datetime(1970, 1, 1, 0, 0, 0, 1001)),
        (("DATETIME", 6), "1970-01-01T00:00:00.001001Z", datetime(1970, 1, 1, 0, 0, 0, 1001)),
        (("TIMESTAMP", 3), "1970-01-01T00:00:01Z", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (("TIMESTAMP", 3), "1970-01-01T00:00:00Z", None),  # 0000-00-00: the type begins a second later
        ("TIME", -3020399000000, -timedelta(hours=838, minutes=59, seconds=59)),
        (("YEAR", 4), 2155, 2155),
        (("VARCHAR", 20), "12", "12"),
        (("ENUM", ["small", "x,l"]), "x\\,l", "x,l"),
        (("SET", ["d", "c", "b"]), "b,c", ("c", "b")),
        ("JSON", '{"a": 1}', '{"a":1}'),
        (("BINARY", 8), "JZTfu5KwSvM=", bytes.fromhex("2594dfbb92b04af3")),
        (("BINARY", 8), "2594dfbb92b04af3", bytes.fromhex("2594dfbb92b04af3")),
        ("BLOB", "-_8=", b"\xfb\xff"),
        ("BLOB", "e9a844", bytes.fromhex("e9a844")),
        ("BLOB", "", b""),
        ("POINT", {"x": 1.0, "y": 2.0, "wkb": b64(WKB), "srid": None}, bytes(4) + WKB),
        ("VECTOR", [1.0, -2.5], struct.pack("<2f", 1, -2.5)),
        ("UUID", "a0ee", "a0ee"),
    ],
)
def test_without_schemas_a_value_is_read_by_the_tables_definition(
    known: Any, value: Any, expected: Any
) -> None:
    assert_same(value_of(value, type=known), expected)
    assert value_of(None, type=known) is None


@pytest.mark.parametrize(
    ("schema", "known", "value", "expected"),
    [
        (connect("int64"), "BIGINT UNSIGNED", -1, 18446744073709551615),
        (connect("int64"), "BIGINT", -1, -1),
        (connect("bytes", DECIMAL, scale="0"), "BIGINT UNSIGNED", "AP//////////", 18446744073709551615),
        (connect("string"), ("DECIMAL", 20, 0), "1234", Decimal(1234)),
        (connect("double"), ("DECIMAL", 10, 2), 0.1, Decimal("0.10")),
        (connect("bytes", DECIMAL, scale="2"), ("DECIMAL", 10, 2), "Bw==", Decimal("0.07")),
        (connect("string"), ("VARBINARY", 20), "abcdef", b"\xab\xcd\xef"),
        (connect("bytes"), ("VARBINARY", 20), "abcd", base64.b64decode("abcd")),
        (connect("boolean"), ("TINYINT", 1), True, 1),
        (
            connect("int64", "org.apache.kafka.connect.data.Timestamp"),
            ("DATETIME", 6),
            1,
            datetime(1970, 1, 1, 0, 0, 0, 1000),
        ),
        (connect("string"), "JSON", '{"a": 1}', '{"a":1}'),
        (connect("string", "data.Enum", allowed="a"), ("ENUM", ["a", "x,l"]), "x\\,l", "x,l"),
    ],
)
def test_the_schema_tells_the_form_and_the_definition_the_meaning(
    schema: dict[str, Any], known: Any, value: Any, expected: Any
) -> None:
    assert_same(value_of(value, schema, type=known), expected)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (connect("int64", "time.NanoTimestamp"), 1_999),
        (connect("int64", "time.NanoTime"), 1),
        (connect("string", "time.ZonedTimestamp"), "2038-01-19T03:14:07.1234567Z"),
        (connect("string", "time.ZonedTimestamp"), "2038-01-19T03:14:07.1234567"),
        (connect("string", "time.ZonedTimestamp"), "+12038-01-19T03:14:07.1234567Z"),
        (connect("string", "time.ZonedTime"), "03:14:07.1234567Z"),
    ],
)
def test_a_time_finer_than_microseconds_is_refused(schema: dict[str, Any], value: Any) -> None:
    """SQL Server has such times, and flattened records may hide that they are of it."""
    last = value.replace("1234567", "1234560") if isinstance(value, str) else 1_000
    finer, exact = (with_schema(envelope(after={"c": each}), {"c": schema}) for each in (value, last))
    format_ = Debezium()
    for _ in range(100):  # a shape that is met often gets a decoder of its own
        with pytest.raises(UndecodableRecord, match="finer than microseconds"):
            row_of(record(finer), format_)
        assert "c" in row_of(record(exact), format_)


@pytest.mark.parametrize("value", [1, 123456789012345678901234567890, 1.5, "Bw==", True, None, [1], {"a": 1}])
def test_where_nothing_tells_the_type_a_value_stays_as_json_has_it(value: Any) -> None:
    change = change_of(record(envelope(after={"c": value})))
    assert change.types is None
    assert_same((change.after or {})["c"], value)


# ---- forms that a value alone may not tell


def read_as(known: Any, text: str, **settings: str) -> Any:
    format_ = Debezium(DebeziumSettings.model_validate(settings))
    format_.learn(create({"c": known}))
    return row_of(record(envelope(after={"c": text})), format_)["c"]


@pytest.mark.parametrize(
    ("known", "text", "setting"),
    [
        (("DECIMAL", 20, 0), "1234", "debezium.decimals"),
        (("DECIMAL", 65, 0), "18446744073709551615", "debezium.decimals"),
        ("BLOB", "abcd", "debezium.binary"),
        (("VARBINARY", 20), "beef", "debezium.binary"),
    ],
)
def test_what_could_be_read_in_two_ways_is_asked_for(known: Any, text: str, setting: str) -> None:
    with pytest.raises(UndecodableRecord, match=f"set {setting} to the connector's"):
        read_as(known, text)


@pytest.mark.parametrize(
    ("known", "text", "settings", "expected"),
    [
        (("DECIMAL", 20, 0), "1234", {"decimals": "string"}, Decimal(1234)),
        (("DECIMAL", 20, 0), "1234", {"decimals": "precise"}, Decimal(-2_658_824)),
        (("DECIMAL", 20, 0), "12345", {}, Decimal(12345)),
        (("DECIMAL", 20, 0), "Bw==", {}, Decimal(7)),
        (("DECIMAL", 20, 0), "18446744073709551615", {}, Decimal(18446744073709551615)),
        ("BLOB", "abcd", {"binary": "hex"}, b"\xab\xcd"),
        ("BLOB", "abcd", {"binary": "bytes"}, base64.b64decode("abcd")),
        ("BLOB", "abcd", {"binary": "base64-url-safe"}, base64.b64decode("abcd")),
        ("BLOB", "abcdef", {}, b"\xab\xcd\xef"),
        (("BINARY", 4), "abcdef01", {"binary": "hex"}, b"\xab\xcd\xef\1"),
        (("BINARY", 2), "beef", {}, b"\xbe\xef"),
        (("BINARY", 3), "abcd", {}, base64.b64decode("abcd")),
        (("VARBINARY", 5), "abcdef0123", {}, b"\xab\xcd\xef\1\x23"),
        (("VARBINARY", 2), "abcd", {}, b"\xab\xcd"),
    ],
)
def test_the_definition_or_the_configuration_tells_it(
    known: Any, text: str, settings: dict[str, str], expected: Any
) -> None:
    assert_same(read_as(known, text, **settings), expected)


@pytest.mark.parametrize(
    ("number", "type_", "expected"),
    [
        ("1234567890123.1234567890", ("DECIMAL", 23, 10), Decimal("1234567890123.1234567890")),
        ("12", ("DECIMAL", 10, 2), Decimal("12.00")),
        ("-0.10", ("DECIMAL", 10, 2), Decimal("-0.10")),
    ],
)
@pytest.mark.parametrize("has_schema", [True, False])
def test_decimals_that_come_as_numbers_keep_their_digits(
    number: str, type_: Any, expected: Decimal, has_schema: bool
) -> None:
    """`decimal.format=NUMERIC` of the JsonConverter."""
    message = envelope(after={"id": 7, "c": "?"})
    columns = {"id": connect("int32"), "c": connect("bytes", DECIMAL, scale=str(type_[2]))}
    text = json.dumps(with_schema(message, columns) if has_schema else message).replace('"?"', number)
    format_ = Debezium()
    format_.learn(create({"id": "INT", "c": type_}))
    assert_same(row_of(record(text.encode()), format_)["c"], expected)
    if has_schema:
        assert_same(row_of(record(text.encode()))["c"], expected)
