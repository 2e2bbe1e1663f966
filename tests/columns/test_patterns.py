"""LIKE: what it means, and that no row makes it take long."""

from __future__ import annotations

import sqlite3
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from worker.column_rules.comparing import FilterFault, like


def naively(value: str, pattern: str) -> bool:
    """Character by character: what a pattern means, in the product of both lengths."""
    if not pattern:
        return not value
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(naively(value[place:], rest) for place in range(len(value) + 1))
    if first == "\\":
        first, rest = rest[:1] or "\\", rest[1:]
    elif first == "_" and value:
        return naively(value[1:], rest)
    return value[:1] == first and naively(value[1:], rest)


@given(value=st.text("ab%_\\", max_size=8), pattern=st.text("ab%_", max_size=6))
def test_like_is_as_in_sql(value: str, pattern: str) -> None:
    with sqlite3.connect(":memory:") as database:
        database.execute("PRAGMA case_sensitive_like = 1")
        [(expected,)] = database.execute("SELECT ? LIKE ?", (value, pattern)).fetchall()
    assert like(value, pattern) is bool(expected)


@example(value="ab", pattern="ab%b")  # both ends may not have the same character
@example(value="\\", pattern="\\")
@example(value="a\n", pattern="a_")
@example(value="a\\", pattern="%\\\\")
@example(value="a\\b", pattern="a\\\\_")
@example(value="aabab", pattern="%a_b%")
@example(value="ab", pattern="%a___%")  # a text shorter than the part between two %
@given(value=st.text("ab%_\\ü\n", max_size=12), pattern=st.text("ab%_\\ü\n", max_size=9))
def test_like_goes_by_characters_and_a_backslash_takes_their_meaning(value: str, pattern: str) -> None:
    assert like(value, pattern) is naively(value, pattern)


@given(
    value=st.text("ab", min_size=10, max_size=40),
    segments=st.lists(st.text("aab_", max_size=5), min_size=1, max_size=5),
)
def test_segments_are_found_wherever_the_text_nearly_has_them(value: str, segments: list[str]) -> None:
    pattern = "%".join(segments)
    assert like(value, pattern) is naively(value, pattern)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ("a" * 20_000, "%a" * 50 + "%b"),
        ("a" * 20_000, "%" + "a" * 5_000 + "b"),
        ("a" * 500_000, "%" + "a" * 100_000 + "b%"),
        ("ab" * 250_000, "%" + "ab" * 50_000 + "b%"),
        ("a" * 10_000, "_" * 4_000 + "%b"),
        ("a" * 10_000, "%" + "_" * 4_000 + "b%"),
        ("a" * 10_000, "%" + "a_" * 2_000 + "b%"),
        ("a" * 10_000, "%a_" * 1_500 + "b%"),
        ("a" * 500_000, "%a_b%"),
        ("a" * 20_000_000, "%b%"),
    ],
)
def test_no_pattern_takes_long(value: str, pattern: str) -> None:
    begin = time.process_time()
    assert like(value, pattern) is False
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("pattern", ["%" + "a_" * 5_000 + "b%", "%" + "a" * 5_000 + "_b%"])
def test_what_would_take_long_is_refused(pattern: str) -> None:
    begin = time.process_time()
    with pytest.raises(FilterFault, match="LIKE takes more than 50000000 steps for a row") as fault:
        like("a" * 200_000, pattern)
    assert "aaa" not in str(fault.value)
    assert time.process_time() - begin < 1


def test_patterns_that_differ_in_each_row_take_little_time() -> None:
    """Another column may be the pattern."""
    begin = time.process_time()
    for row in range(20):
        assert like("b" * 50_001, f"%{'b' * 50_000}{row}%") is False
    for row in range(20_000):
        assert like(f"a{row}", f"a{row}%") is True
    assert time.process_time() - begin < 1


def test_a_long_pattern_is_refused_even_for_a_short_text() -> None:
    """To compile it takes time, and what is compiled is kept."""
    with pytest.raises(FilterFault, match="takes more than 50000000 steps"):
        like("a", "_" * 10_001)
    assert like("a" * 5_000, "_" * 5_000) is True


def test_a_long_text_may_be_searched_for_a_short_pattern() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 100_000
    assert like(text, "%fox_leaps%") is False
    assert like(text + "fox leaps", "%fox_leaps") is True
