"""The shapes that formats learn are bounded by their columns, however many tables there are."""

from __future__ import annotations

import msgspec
import pytest

from handlers.mysql.values import Converter
from worker.formats.json_rows import RowStruct, Shapes


def test_shapes_are_forgotten_together_before_they_hold_more_columns_than_they_may() -> None:
    shapes = Shapes[int, str]()
    forgotten = [number for number in range(1_000) if shapes.add(number, f"shape {number}", 1_000)]
    assert forgotten == list(range(99, 1_000, 99)), "each weighs 1,004 columns"
    assert shapes.get(999) == "shape 999"
    assert sum(shapes.get(number) is not None for number in range(1_000)) <= 100


@pytest.mark.parametrize("names", [(), ("id",), ("id", "a b", "it's", "{x}'+", "", "class")])
def test_a_reader_made_for_its_columns_finishes_each_value_by_its_own_column(names: tuple[str, ...]) -> None:
    columns = {
        name: Converter(
            int, str, (None, str, hex)[place % 3], (lambda value: value > 5) if place % 3 == 2 else None
        )
        for place, name in enumerate(names)
    }
    struct = RowStruct(columns)
    told: list[bytes] = []
    decode = msgspec.json.Decoder(struct.type).decode

    def finished(value: int) -> dict[str, object]:
        return {
            name: (value, str(value), hex(value) if value <= 5 else value)[place % 3]
            for place, name in enumerate(names)
        }

    rows = [decode(msgspec.json.encode(dict.fromkeys(names, value))) for value in (1, 7)]
    assert [struct.reader()(row) for row in rows] == [finished(1), finished(7)]
    read_both = struct.pair_reader()
    assert read_both(*rows) == (finished(1), finished(7))
    assert read_both(rows[1], rows[1]) == (finished(7), finished(7))
    if names:
        read = struct.reader(told.append)
        assert [read(row, b"") for row in rows] == [finished(1), finished(7)]
        assert not told
        text = msgspec.json.encode(dict.fromkeys(names))
        assert read(decode(text), text) == dict.fromkeys(names)
        assert told == [text]


def test_equal_values_of_both_rows_are_finished_once_and_unlike_zeros_each() -> None:
    finished = list[object]()

    def finish(value: object) -> object:
        finished.append(value)
        return value

    struct = RowStruct({"f": Converter(float, finish, finish), "t": Converter(str, finish, finish)})
    decode = msgspec.json.Decoder(struct.type).decode
    old, new = struct.pair_reader()(decode(b'{"f":-0.0,"t":"a"}'), decode(b'{"f":0.0,"t":"a"}'))
    assert repr((old, new)) == "({'f': -0.0, 't': 'a'}, {'f': 0.0, 't': 'a'})"
    assert repr(finished) == "[-0.0, 0.0, 'a']"
