"""Types that Debezium's schemas and definitions tell, values its log lacks, and values of no type."""

from __future__ import annotations

from typing import Any

import pytest
from debezium_columns import DECIMAL, POSTGRESQL, WKB, assert_same, b64, value_of
from debezium_messages import change_of, connect, create, envelope, record, with_schema

from worker.formats.debezium.format import Debezium
from worker.formats.interface import UndecodableRecord

# ---- types


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (connect("int16"), "smallint"),
        (connect("int64"), "bigint"),
        (connect("boolean"), "bit(1)"),
        (connect("string"), "longtext"),
        (connect("bytes"), "longblob"),
        (connect("bytes", DECIMAL, **{"scale": "2", "connect.decimal.precision": "12"}), "decimal(12,2)"),
        (connect("int64", "time.MicroTimestamp"), "datetime(6)"),
        (connect("string", "time.ZonedTimestamp"), "timestamp(6)"),
        (connect("string", "data.Enum", allowed="it's,x\\,l"), "enum('it''s','x,l')"),
        (connect("bytes", "data.Bits", length="8"), "bit(8)"),
        (
            connect(
                "string",
                **{"__debezium.source.column.type": "VARCHAR", "__debezium.source.column.length": "60"},
            ),
            "varchar(60)",
        ),
        (connect("int64", **{"__debezium.source.column.type": "BIGINT UNSIGNED"}), "bigint unsigned"),
    ],
)
def test_a_schema_tells_the_type(schema: dict[str, Any], expected: str) -> None:
    change = change_of(record(with_schema(envelope(after={"c": None}), {"c": schema})))
    assert change.types == {"c": expected}


def test_a_source_type_in_the_schema_counts_as_the_tables_definition() -> None:
    unsigned = connect("int64", **{"__debezium.source.column.type": "BIGINT UNSIGNED"})
    assert value_of(-1, unsigned) == 18446744073709551615


@pytest.mark.parametrize("type_text", ["BIGINT UNSIGNED", "BIGINT", "INT"])
def test_an_integer_that_a_transform_made_a_text_of_is_its_digits(type_text: str) -> None:
    text = connect("string", **{"__debezium.source.column.type": type_text})
    assert value_of("1844674407", text) == 1844674407
    with pytest.raises(UndecodableRecord, match="no number"):
        value_of("many", text)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (("BIGINT UNSIGNED", 20), "bigint(20) unsigned"),
        ("INT UNSIGNED ZEROFILL", "int unsigned zerofill"),
        (("DECIMAL", 12, 2), "decimal(12,2)"),
        (("CHARACTER VARYING", 9), "varchar(9)"),
        (("DATETIME", 6), "datetime(6)"),
        ("LONGTEXT", "longtext"),
        ("BOOLEAN", "tinyint(1)"),
        ("DOUBLE PRECISION", "double"),
        (("ENUM", ["a", "b"]), "enum('a','b')"),
    ],
)
def test_the_tables_definition_tells_the_type(known: Any, expected: str) -> None:
    format_ = Debezium()
    format_.learn(create({"c": known}))
    assert change_of(record(envelope(after={"c": None})), format_).types == {"c": expected}


def test_types_are_one_object_for_all_changes_of_a_shape() -> None:
    format_ = Debezium()
    one = record(with_schema(envelope(after={"c": 1}), {"c": connect("int32")}))
    assert change_of(one, format_).types is change_of(one, format_).types


# ---- PostgreSQL


def test_a_boolean_of_postgresql_is_a_bool() -> None:
    assert_same(value_of(True, connect("boolean"), at=POSTGRESQL), True)
    message = with_schema(envelope(after={"c": True}, at=POSTGRESQL), {"c": connect("boolean")})
    assert change_of(record(message)).types == {"c": "boolean"}


UNAVAILABLE = "__debezium_unavailable_value"


@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize(
    ("schema", "placeholder"),
    [
        (connect("string"), UNAVAILABLE),
        (connect("string", "data.Json"), UNAVAILABLE),
        (connect("bytes"), b64(UNAVAILABLE.encode())),
        ({"type": "array", "items": connect("string")}, [UNAVAILABLE]),
        ({"type": "array", "items": connect("int32")}, list(UNAVAILABLE.encode())),
        ({"type": "map"}, {UNAVAILABLE: UNAVAILABLE}),
    ],
)
def test_a_value_that_the_log_does_not_hold_is_absent(
    schema: dict[str, Any], placeholder: Any, has_schema: bool
) -> None:
    """PostgreSQL logs large values only when they change (TOAST)."""
    format_ = Debezium()
    columns = {"id": connect("int32"), "c": schema}
    for _ in range(70):
        for value, expected in ((None, {"id": 7, "c": None}), (placeholder, {"id": 7})):
            message = envelope("u", after={"id": 7, "c": value}, at=POSTGRESQL)
            one = record(with_schema(message, columns) if has_schema else message)
            assert change_of(one, format_).after == expected


def test_the_placeholder_is_a_text_like_any_other_in_mysql() -> None:
    assert value_of(UNAVAILABLE, connect("string")) == UNAVAILABLE


# ---- values that are none of their type


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (connect("int32"), "seven"),
        (connect("int32"), 1.5),
        (connect("bytes"), "no base64!"),
        (connect("bytes", DECIMAL, scale="2"), [12]),
        (connect("int32", "time.Date"), "soon"),
        (connect("string", "time.ZonedTimestamp"), "soon"),
        (connect("string", "time.ZonedTime"), "soon"),
        (connect("float"), 1e300),
        (connect("string"), 5),
        (connect("struct", "data.VariableScaleDecimal"), {"value": "Bw=="}),
        (connect("struct", "data.geometry.Point"), {"wkb": b64(WKB), "srid": -1}),
        ({"type": "array", "items": connect("int32")}, [1, "x"]),
    ],
)
def test_a_value_that_is_none_of_its_type_is_told_with_its_column(schema: dict[str, Any], value: Any) -> None:
    format_ = Debezium()
    good = record(with_schema(envelope(after={"c": None}), {"c": schema}))
    bad = record(with_schema(envelope(after={"c": value}), {"c": schema}))
    for _ in range(70):
        change_of(good, format_)
    for reader in (Debezium(), format_):
        changes: list[Any] = []
        with pytest.raises(UndecodableRecord, match=r"^column 'c' of (any )?type "):
            reader.decode(bad, changes)
        assert changes == []


@pytest.mark.parametrize(
    ("known", "value"),
    [
        (("DECIMAL", 10, 2), "Bw"),
        (("DECIMAL", 10, 2), [1]),
        ("BIGINT UNSIGNED", "?"),
        ("BIGINT UNSIGNED", 1.5),
        ("BLOB", "?"),
        ("BLOB", 5),
        ("DATE", "soon"),
        ("VECTOR", ["x"]),
    ],
)
def test_without_schemas_too(known: Any, value: Any) -> None:
    with pytest.raises(UndecodableRecord, match=r"^column 'c' of (any )?type "):
        value_of(value, type=known)
