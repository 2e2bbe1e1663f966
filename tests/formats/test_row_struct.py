"""The shapes that formats learn are bounded by their columns, however many tables there are."""

from __future__ import annotations

import msgspec
import pytest

from worker.formats.row_struct import RowStruct, Shapes, StructColumn


def test_shapes_are_forgotten_together_before_they_hold_more_columns_than_they_may() -> None:
    shapes = Shapes[int, str]()
    forgotten = [number for number in range(1_000) if shapes.add(number, f"shape {number}", 1_000)]
    assert forgotten == list(range(99, 1_000, 99)), "each weighs 1,004 columns"
    assert shapes.get(999) == "shape 999"
    assert sum(shapes.get(number) is not None for number in range(1_000)) <= 100


@pytest.mark.parametrize("names", [("id",), ("id", "a b", "it's", "{x}'+", "", "class")])
def test_a_reader_made_for_its_columns_gives_what_finishing_them_one_by_one_gives(
    names: tuple[str, ...],
) -> None:
    columns = [
        StructColumn(
            name, int, (None, str, hex)[place % 3], (lambda value: value > 5) if place % 3 == 2 else None
        )
        for place, name in enumerate(names)
    ]
    struct = RowStruct(columns)
    told: list[bytes] = []
    read = struct.reader(told.append)
    decode = msgspec.json.Decoder(struct.type).decode
    for value in (1, 7):
        text = msgspec.json.encode(dict.fromkeys(names, value))
        assert read(decode(text), text) == struct.finish(struct.as_row(decode(text)))
    assert not told
    text = msgspec.json.encode(dict.fromkeys(names))
    assert read(decode(text), text) == dict.fromkeys(names)
    assert told == [text]
