"""Durations and sizes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.options.values import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("5s", 5), ("2m", 120), ("1h", 3600), ("0s", 0), ("1.5s", 1.5), ("0.5ms", 0.0005)],
)
def test_a_duration_means_its_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("1B", 1), ("512KiB", 524_288), ("64MiB", 67_108_864), ("1GiB", 1_073_741_824)]
)
def test_a_size_means_its_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s", "-5s", "+5s", "5S", "5sec", "1h30m", "5s\n", "٥s", "1e3s", ".5s", "5.s"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "5", "KiB", "5kb", "5MB", "5 MiB", "-5MiB", "1.5MiB", "5MiB\n", "5mib"])
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_that_is_written_is_read_again(microseconds: int) -> None:
    seconds = microseconds / 1_000_000
    text = format_duration(seconds)
    assert re.search(DURATION_PATTERN, text)
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-9)


@given(st.integers(min_value=0, max_value=10**14))
def test_a_size_that_is_written_is_read_again(size: int) -> None:
    text = format_size(size)
    assert re.search(SIZE_PATTERN, text)
    assert parse_size(text) == size


@given(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "h"]))
def test_the_shortest_duration_is_written(number: int, unit: str) -> None:
    text = f"{number}{unit}"
    assert len(format_duration(parse_duration(text))) <= len(text)


@given(st.text(max_size=12))
def test_the_pattern_says_exactly_what_is_read(text: str) -> None:
    for pattern, parse in ((DURATION_PATTERN, parse_duration), (SIZE_PATTERN, parse_size)):
        # JSON Schema's `$` knows no line break at the end, as `\Z` in Python.
        fits = re.search(pattern.replace("$", r"\Z"), text) is not None
        try:
            parse(text)
        except ValueError:
            assert not fits
        else:
            assert fits
