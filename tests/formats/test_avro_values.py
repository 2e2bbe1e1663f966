"""Single values in Avro: numbers that their types cannot hold, and equal ones that are not the same."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from avro_bytes import PREFIX, array, envelope, long, record_type, registered

from worker.formats.debezium.connect.schema import Field
from worker.formats.debezium.connect.values import connect_reader
from worker.formats.schema_registry.avro.code import Code
from worker.formats.schema_registry.avro.schema import parse
from worker.formats.schema_registry.avro.values import reader_of

BOUNDS = {"int": 31, "long": 63}
TOO_LARGE = [
    *[("int", long(number)) for number in (2**31, -(2**31) - 1, 2**40, 2**63 - 1)],
    ("int", b"\x80" * 5 + b"\0"),
    *[("long", long(number)) for number in (2**63, -(2**63) - 1, 2**68)],
    *[(kind, b"\xff" * 9 + b"\x7f") for kind in BOUNDS],
]


def readers(kind: str) -> list[Any]:
    """The slow one, and generated code."""
    schema = parse(json.dumps(kind))
    code = Code()
    code.read(schema, "x")
    code.line("return x, p")
    return [reader_of(schema), code.made()]


@pytest.mark.parametrize(("kind", "avro"), TOO_LARGE)
def test_a_number_that_its_type_cannot_hold_is_not_of_its_schema(kind: str, avro: bytes) -> None:
    for read in readers(kind):
        with pytest.raises(ValueError, match="a number of more than"):
            read(avro, 0)


@pytest.mark.parametrize("kind", BOUNDS)
def test_every_number_of_its_type_is_read(kind: str) -> None:
    for read in readers(kind):
        for bits in range(BOUNDS[kind] + 1):
            for number in (2**bits - 1, -(2**bits), 2**bits - 2):
                avro = long(number)
                assert read(avro + b"\xff", 0) == (number, len(avro))


@pytest.mark.parametrize(
    ("column", "field"),
    [
        (array("double"), Field("array", items=Field("double"))),
        (array("float"), Field("array", items=Field("float"))),
        (["null", array(["null", "double"])], Field("array", items=Field("double"))),
        ({"type": "map", "values": "double"}, Field("map")),
        (record_type("R", x="double"), Field("struct")),
        ("double", Field("double")),
    ],
    ids=range(6),
)
def test_a_negative_zero_stays_one_where_the_row_before_had_zero(column: Any, field: Field) -> None:
    def value(number: float) -> bytes:
        packed = struct.pack("<f" if "float" in json.dumps(column) else "<d", number)
        match column:
            case "double":
                return packed
            case {"type": "record"}:
                return packed
            case {"type": "map"}:
                return b"\2\2k" + packed + b"\0"
            case ["null", "double", "string"]:
                return b"\2" + packed
            case ["null", _]:
                return b"\2\2\2" + packed + b"\0"
        return b"\2" + packed + b"\0"

    made = registered(envelope({"c": column})).envelope
    assert made is not None
    rows = made.rows({"id": connect_reader(Field("int64")), "c": connect_reader(field)})
    assert rows is not None
    for one, other in ((0.0, -0.0), (-0.0, 0.0)):
        avro = b"\2\2" + value(one) + b"\2\2" + value(other) + b"\2a" * 5
        _, before, after = rows(PREFIX + avro, len(PREFIX))
        assert before is not None
        assert after is not None
        assert ("-0.0" in repr(before["c"]), "-0.0" in repr(after["c"])) == (
            str(one) == "-0.0",
            str(other) == "-0.0",
        )
