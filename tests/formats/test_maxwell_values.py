"""Maxwell's values, by the table's definition at the row's place in the log, and without one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from captured import CapturedRecord
from maxwell_messages import (
    ORDERS,
    PRACTICE,
    after,
    column,
    ddl,
    decode,
    definition,
    knowing,
    raw,
    row,
    statement,
)

from worker.formats.interface import UndecodableRecord
from worker.formats.maxwell.format import Maxwell

c = partial(column, "c")
text = partial(column, "c", charset="utf8mb4")
binary = partial(column, "c", charset="binary")


def test_a_row_is_read_by_the_table_at_its_place_in_the_log() -> None:
    retyped = ddl(
        "table-alter",
        "ALTER TABLE orders MODIFY total varchar(9)",
        at="mysql-bin.000002:1000",
        offset=1,
        before=definition("orders", column("id", "bigint"), column("total", "decimal")),
        after=definition("orders", column("id", "bigint"), column("total", "varchar")),
    )
    format_ = knowing(ORDERS, retyped)
    for _ in range(PRACTICE):
        assert after(row(), format_)["total"] == Decimal("9061.50")
        assert (
            after(row(position="mysql-bin.000010:4", data={"id": 7, "total": "x"}), format_)["total"] == "x"
        )


@pytest.mark.parametrize("late", [{"schema_id": 8}, {}])
def test_rows_without_a_position_go_by_the_schemas_number_or_the_time(late: dict[str, int]) -> None:
    def create(number: int, type_: str, at_ms: int) -> CapturedRecord:
        columns = definition("orders", column("id", "bigint"), column("total", type_))
        made = ddl(
            "table-create", f"CREATE TABLE orders (id bigint, total {type_}(9,3))", offset=number,
            at=None, after=columns, **({"schema_id": number} if late else {}),
        )  # fmt: skip
        return CapturedRecord(made.topic(), 0, number, at_ms, None, made.value(), [])

    format_ = knowing(create(7, "varchar", 1000), create(9, "decimal", 1763000000124))
    first = row(position=..., data={"id": 7, "total": "1.5"}, **late)
    assert after(first, format_)["total"] == "1.5"
    second = row(position=..., data={"id": 7, "total": 1.5}, **({"schema_id": 9} if late else {}))
    second = CapturedRecord("maxwell", 0, 9, 1763000000125, None, second.value(), [])
    assert str(after(second, format_)["total"]) == "1.500"


MOMENT = datetime(2025, 1, 2, 3, 4, 5, 600000)
DIGITS = "9" * 28 + "." + "9" * 10
LABELS = ["2", "it's", "a\\b"]
POINT = bytes.fromhex("00000000 0101000000 000000000000f03f 0000000000000040")
JSON = '{"b": [1.50, "\\u00e9\\/ x"], "a":null}'

# The column as Maxwell has it, as the statement has it, its type, the value as JSON, the value.
VALUES: list[tuple[dict[str, Any], str, str, str, Any]] = [
    (c("bigint", signed=False), "bigint unsigned", "bigint unsigned", str(2**64 - 1), 2**64 - 1),
    (c("tinyint", signed=True), "bool", "tinyint(1)", "1", 1),
    (c("tinyint", signed=False), "tinyint unsigned", "tinyint unsigned", "255", 255),
    (c("bit"), "bit(8)", "bit(8)", "255", 255),
    (c("year"), "year", "year", "2155", 2155),
    (c("decimal"), "numeric(38, 10)", "decimal(38,10)", DIGITS, Decimal(DIGITS)),
    (c("decimal"), "decimal(10,2) unsigned", "decimal(10,2) unsigned", "51.7", Decimal("51.70")),
    (c("decimal"), "dec", "decimal(10,0)", "5", Decimal(5)),
    (c("double"), "double", "double", "1.0E-300", 1e-300),
    (c("double"), "double", "double", "7", 7.0),
    (c("float"), "float", "float", "0.1", 0.10000000149011612),
    (c("date"), "date", "date", '"0000-00-00"', None),
    (c("datetime", column_length=6), "?", "datetime(6)", '"2025-01-02 03:04:05.600000"', MOMENT),
    (c("datetime", column_length=0), "?", "datetime", '"0000-00-00 00:00:00"', None),
    (
        c("timestamp", column_length=3),
        "timestamp(3)",
        "timestamp(3)",
        '"2025-01-02 03:04:05.600"',
        MOMENT.replace(tzinfo=UTC),
    ),
    (c("time", column_length=0), "time", "time", '"-12:00:01"', -timedelta(hours=12, seconds=1)),
    (text("varchar"), "national varchar(9)", "varchar(9)", '"\\ud83d\\ude00"', "😀"),
    (text("char"), "character(3)", "char(3)", '"7"', "7"),
    (binary("text"), "text charset binary", "blob", '"AP8="', b"\x00\xff"),
    (binary("char"), "char(4) charset binary", "binary(4)", '"QpCu"', b"B\x90\xae\x00"),
    (binary("binary"), "binary(4)", "binary(4)", '"QpCu"', b"B\x90\xae\x00"),
    (binary("varbinary"), "varbinary(9)", "varbinary(9)", '""', b""),
    (binary("longblob"), "longblob", "longblob", '"AP8="', b"\x00\xff"),
    (c("enum", enum_values=LABELS), "?", r"enum('2','it''s','a\\b')", '"2"', "2"),
    (c("set", enum_values=["b", "a"]), "?", "set('b','a')", '["a","b"]', ("b", "a")),
    (c("set", enum_values=["b", "a"]), "?", "set('b','a')", "[]", ()),
    (c("json"), "json", "json", JSON, '{"b":[1.50,"é/ x"],"a":null}'),
    (c("json"), "json", "json", '"text"', '"text"'),
    (c("json"), "json", "json", "null", None),
    (c("point"), "point", "point", '"POINT (1 2)"', POINT),
]


def holding(sent: str) -> bytes:
    """A row whose column c is this JSON."""
    return (row(data={"id": 7, "c": "<here>"}).value() or b"").replace(b'"<here>"', sent.encode())


def of_column(made: dict[str, Any], written: str) -> Maxwell:
    return knowing(statement(f"CREATE TABLE orders (id int, c {written}, d int)", column("id", "int"), made))


@pytest.mark.parametrize(("made", "written", "type_text", "sent", "value"), VALUES)
def test_a_value_is_what_its_columns_type_says(
    made: dict[str, Any], written: str, type_text: str, sent: str, value: Any
) -> None:
    format_ = of_column(made, written)
    whole = holding(sent)
    for _ in range(PRACTICE):
        (change,) = decode(raw(whole), format_)
        assert change.types == {"id": "int", "c": type_text}
        found = (change.after or {})["c"]
        assert (type(found), str(found)) == (type(value), str(value))


@pytest.mark.parametrize(
    ("made", "written", "sent", "said"),
    [
        (c("bigint"), "bigint", "1.5", "column 'c' of type bigint holds 1.5: no integer"),
        (c("decimal"), "decimal(3,1)", "[1]", r"column 'c' of type decimal\(3,1\) holds \[1\]: no number"),
        (c("blob"), "blob", '"?"', "column 'c' of type blob holds"),
        (c("set", enum_values=["a"]), "set", '["b"]', "not one of its 1 labels"),
        (c("geometry"), "geometry", '"CIRCLE (1 2)"', "not a geometry: its type does not exist in MySQL"),
        (c("geometry"), "geometry", '"' + "GEOMETRYCOLLECTION (" * 9999 + '"', "nested too deeply"),
        (c("datetime"), "datetime", "5", "no date"),
        (c("varchar"), "varchar(9)", "5", "Expected `str"),
        (c("json"), "json", "[" * 100_000 + "]" * 100_000, "not a Maxwell record"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused_with_its_column(
    made: dict[str, Any], written: str, sent: str, said: str
) -> None:
    whole = holding(sent)
    with pytest.raises(UndecodableRecord, match=said):
        decode(raw(whole), of_column(made, written))


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        ("7", 7),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("0.1", 0.1),
        ("5119.7600", 5119.76),
        ("1.0E-300", 1e-300),
        ("9999999999999999999999999999.9999999999", Decimal("9999999999999999999999999999.9999999999")),
        ("1E+400", Decimal("1E+400")),
        ('"text"', "text"),
        ("null", None),
        ("true", True),
        ('{"b": 1.50}', '{"b":1.50}'),
        ('["a", "b"]', '["a","b"]'),
    ],
)
def test_a_value_without_a_type_loses_nothing(unknowing: Maxwell, sent: str, value: Any) -> None:
    for _ in range(PRACTICE * 3):
        found = after(raw(holding(sent)), unknowing)["c"]
        assert (type(found), found) == (type(value), value)


def test_a_column_more_or_less_than_the_table_has_is_no_fault(maxwell: Maxwell) -> None:
    for _ in range(PRACTICE * 3):
        assert after(row(data={"id": 7, "note": "x"}), maxwell) == {"id": 7, "note": "x"}
        assert after(row(data={"id": 7, "new": 0.5}), maxwell) == {"id": 7, "new": 0.5}
        assert after(row(), maxwell) == {"id": 7, "total": Decimal("9061.50"), "note": None}


def test_names_that_are_no_identifiers_are_columns_like_others() -> None:
    names = ["dot.col", "a b", "select", "q``tick", "列", "__slots__", ""]
    data = {name: place for place, name in enumerate(names)}
    format_ = Maxwell()
    for _ in range(PRACTICE):
        assert after(row(data=data, primary_key_columns=["a b"]), format_) == data


def test_tables_of_one_shape_are_kept_apart() -> None:
    """The same key names and columns; one spells them otherwise."""
    format_ = Maxwell()
    for _ in range(PRACTICE):
        (one,) = decode(row('{"pk.id":1}', data={"id": 1}, primary_key_columns=...), format_)
        (other,) = decode(row('{"pk.id":1}', table="t", data={"Id": 1}, primary_key_columns=...), format_)
        assert (one.key_columns, other.key_columns) == (("id",), ("Id",))
