"""Two sides in the order of their key, and rows without one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.verifying.comparing import Difference, OutOfOrder, Range, ranges, surplus

Rows = list[tuple[Any, ...]]


def compared(source: Rows, replica: Rows, chunk: int = 2) -> list[Range]:
    return list(ranges(source, replica, lambda row: row[:1], chunk))


def differences(source: Rows, replica: Rows, chunk: int = 2) -> list[Difference]:
    return [each for part in compared(source, replica, chunk) for each in part.differences]


def test_equal_sides_have_equal_checksums() -> None:
    rows = [(number, f"n{number}") for number in range(5)]
    parts = compared(rows, rows)
    assert [(part.source_rows, part.replica_rows) for part in parts] == [(2, 2), (2, 2), (1, 1)]
    assert not any(part.differences for part in parts)


def test_each_kind_of_difference_is_told() -> None:
    source = [(1, "a"), (2, "b"), (3, "c")]
    replica = [(0, "z"), (1, "a"), (3, "C"), (9, "y")]
    assert differences(source, replica) == [
        Difference((2,), (2, "b"), None),
        Difference((0,), None, (0, "z")),
        Difference((3,), (3, "c"), (3, "C")),
        Difference((9,), None, (9, "y")),
    ]


def test_a_key_that_the_replica_has_twice_is_told() -> None:
    assert differences([(1, "a")], [(1, "a"), (1, "a")]) == [Difference((1,), None, (1, "a"))]


def test_texts_are_in_the_order_of_their_bytes() -> None:
    rows: Rows = [("Z",), ("a",), ("é",), ("字",), ("😀",)]
    assert differences(rows, rows) == []
    with pytest.raises(OutOfOrder, match="the source is not sorted"):
        differences([("a",), ("Z",)], rows)


@given(
    source=st.dictionaries(st.integers(0, 30), st.integers(0, 2)),
    replica=st.dictionaries(st.integers(0, 30), st.integers(0, 2)),
    chunk=st.integers(1, 8),
)
@settings(deadline=None)
def test_whatever_the_ranges_all_differences_are_found(
    source: dict[int, int], replica: dict[int, int], chunk: int
) -> None:
    parts = compared(sorted(source.items()), sorted(replica.items()), chunk)
    found = {each.key[0] for part in parts for each in part.differences}
    assert found == {key for key in source.keys() | replica.keys() if source.get(key) != replica.get(key)}
    assert sum(part.source_rows for part in parts) == len(source)
    assert sum(part.replica_rows for part in parts) == len(replica)
    assert all(earlier.source_rows == chunk for earlier, later in pairwise(parts) if later.source_rows)


def test_rows_without_a_key_are_counted() -> None:
    more, left, right = surplus([("a",), ("a",), ("b",)], [("a",), ("c",), ("b",)])
    assert (sorted(more.values()), left, right) == ([-1, 1], 3, 3)
    assert surplus([("a",), ("a",)], [("a",), ("a",)])[0] == {}
