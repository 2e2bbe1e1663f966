"""The shapes that formats learn are bounded by their columns, however many tables there are."""

from __future__ import annotations

from worker.formats.row_struct import Shapes


def test_shapes_are_forgotten_together_before_they_hold_more_columns_than_they_may() -> None:
    shapes = Shapes[int, str]()
    forgotten = [number for number in range(1_000) if shapes.add(number, f"shape {number}", 1_000)]
    assert forgotten == list(range(99, 1_000, 99)), "each weighs 1,004 columns"
    assert shapes.get(999) == "shape 999"
    assert sum(shapes.get(number) is not None for number in range(1_000)) <= 100
