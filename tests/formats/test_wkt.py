"""Geometries as text, as MySQL's bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.formats.maxwell.wkt import geometry_bytes

ONE = "000000000000f03f"
TWO = "0000000000000040"


@pytest.mark.parametrize(
    ("text", "wkb"),
    [
        ("POINT (1 2)", f"0101000000{ONE}{TWO}"),
        ("point(1.0 2E0)", f"0101000000{ONE}{TWO}"),
        ("LINESTRING (1 2, 2 1)", f"010200000002000000{ONE}{TWO}{TWO}{ONE}"),
        ("LINESTRING EMPTY", "010200000000000000"),
        (
            "POLYGON ((1 2, 2 1), (1 1))",
            f"010300000002000000 02000000{ONE}{TWO}{TWO}{ONE} 01000000{ONE}{ONE}",
        ),
        ("MULTIPOINT ((1 2), (2 1))", f"010400000002000000 0101000000{ONE}{TWO} 0101000000{TWO}{ONE}"),
        ("MULTIPOINT (1 2, 2 1)", f"010400000002000000 0101000000{ONE}{TWO} 0101000000{TWO}{ONE}"),
        ("MULTILINESTRING ((1 2))", f"010500000001000000 010200000001000000{ONE}{TWO}"),
        ("MULTIPOLYGON (((1 2)))", f"010600000001000000 010300000001000000 01000000{ONE}{TWO}"),
        ("GEOMETRYCOLLECTION EMPTY", "010700000000000000"),
        (
            "GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION (POINT (2 1)))",
            f"010700000002000000 0101000000{ONE}{TWO} 010700000001000000 0101000000{TWO}{ONE}",
        ),
    ],
)
def test_a_geometry_is_its_srid_and_wkb(text: str, wkb: str) -> None:
    assert geometry_bytes(text) == bytes.fromhex("00000000" + wkb)
    assert geometry_bytes(text, srid=4326) == bytes.fromhex("e6100000" + wkb)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_any_coordinates_come_back(x: float, y: float) -> None:
    assert struct.unpack("<dd", geometry_bytes(f"POINT ({x!r} {y!r})")[9:]) == (x, y)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "POINT",
        "POINT (1)",
        "POINT (1 2",
        "POINT (1 2) 3",
        "POINT (a b)",
        "POINT (1 2, 3 4)",
        "POINT EMPTY",
        "CIRCLE (1 2)",
        "POINT Z (1 2 3)",
        "LINESTRING (1 2,)",
        "POLYGON (1 2)",
        "?",
        "POINT (1 2);",
    ],
)
def test_what_is_no_geometry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a geometry"):
        geometry_bytes(text)


@given(st.text(alphabet="POINTLESGYMU (),.-019eEZ", max_size=30))
def test_any_text_is_a_geometry_or_refused(text: str) -> None:
    said, srid = "not a geometry", b"\0\0\0\0"
    try:
        srid = geometry_bytes(text)[:4]
    except ValueError as error:
        said = str(error)
    assert said.startswith("not a geometry")
    assert srid == b"\0\0\0\0"
