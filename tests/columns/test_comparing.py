"""How values of different types compare: as in SQL, and no row makes comparing itself fail."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import BeyondCalendar
from worker.column_rules.comparing import FilterFault, compared
from worker.column_rules.filters import read_filter

SIGNS = ("=", "<>", "<", "<=", ">", ">=")
INF = float("inf")


def order(left: Any, right: Any) -> int:
    """-1: the left one is below; 0: they are equal; 1: it is above. All signs agree on it."""
    found = {sign: compared(sign, left, right) for sign in SIGNS}
    below, equal, above = found["<"], found["="], found[">"]
    assert [below, equal, above].count(True) == 1
    assert (found["<>"], found["<="], found[">="]) == (not equal, not above, not below)
    return -1 if below else 0 if equal else 1


def taken(text: str, row: dict[str, Any]) -> bool | None:
    return read_filter(text).on(tuple(row))(row)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, tzinfo=UTC), 0),
        (datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=1))), 1),
        (datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 13, tzinfo=UTC), -1),
        (datetime(2026, 1, 1, 12), "2026-01-01 13:00:00+01:00", 0),
        (datetime(1, 1, 1), "0001-01-01 00:00:00+05:00", 1),
        (datetime(9999, 12, 31, 23), "9999-12-31 23:00:00-05:00", -1),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01 00:00:00+05:00", 1),
    ],
)
def test_times_with_and_without_a_zone_compare_as_moments(left: Any, right: Any, expected: int) -> None:
    assert order(left, right) == expected
    assert order(right, left) == -expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (BeyondCalendar("infinity"), "2026-01-01", 1),
        (BeyondCalendar("infinity"), "infinity", 0),
        (BeyondCalendar("infinity"), datetime(9999, 12, 31, tzinfo=UTC), 1),
        (BeyondCalendar("-infinity"), date(1, 1, 1), -1),
        (BeyondCalendar("0044-03-15 BC"), "0043-03-15 BC", -1),
        (BeyondCalendar("20000-01-01 00:00:00+00"), "20000-01-01", 0),
    ],
)
def test_a_time_beyond_the_calendar_compares_with_times_and_texts(
    left: Any, right: Any, expected: int
) -> None:
    assert order(left, right) == expected
    assert order(right, left) == -expected
    assert taken("t > '2026-01-01'", {"t": left}) is (left > date(2026, 1, 1))


@pytest.mark.parametrize("other", [1, True, b"x", "no time", Decimal(1)])
def test_a_time_beyond_the_calendar_compares_with_nothing_else(other: Any) -> None:
    with pytest.raises(FilterFault):
        compared("<", BeyondCalendar("infinity"), other)


NANS = [float("nan"), Decimal("NaN"), Decimal("sNaN"), Decimal("-NaN12")]


@pytest.mark.parametrize("nan", NANS)
def test_a_nan_equals_itself_and_is_above_all_numbers(nan: Any) -> None:
    """As in PostgreSQL."""
    for other in NANS:
        assert order(nan, other) == 0
    for number in (0, True, 10**400, 1.5, INF, -INF, Decimal("1e400"), Decimal("Infinity")):
        assert order(nan, number) == 1
        assert order(number, nan) == -1
    with pytest.raises(FilterFault, match="a number cannot be compared with a text"):
        compared("=", nan, "NaN")


NUMBERS: list[tuple[Any, Any, int]] = [
    (10**400, 1e308, 1),
    (10**400, INF, -1),
    (-(10**400), -INF, 1),
    (Decimal("1e400"), 1e308, 1),
    (Decimal("1e400"), INF, -1),
    (Decimal("-1e400"), -INF, 1),
    (Decimal("Infinity"), INF, 0),
    (Decimal("Infinity"), 10**400, 1),
    (Decimal("0.1"), 0.1, 0),  # as doubles, as a database compares them
    (2**53 + 1, 2.0**53, 0),
    (True, 1.0, 0),
    (True, Decimal(1), 0),
]


def test_numbers_beyond_a_double_compare_with_doubles() -> None:
    for left, right, expected in NUMBERS:
        assert order(left, right) == expected
        assert order(right, left) == -expected


@pytest.mark.parametrize(
    ("text", "row", "result"),
    [
        ("x > 1e400", {"x": 1.5}, False),
        ("x > 1e400", {"x": INF}, True),
        ("x < 1e400", {"x": Decimal("NaN")}, False),
        ("x > -1e400", {"x": -INF}, False),
        ("x BETWEEN 0 AND 10", {"x": float("nan")}, False),
        ("x IN (1, 2)", {"x": Decimal("sNaN")}, False),
        ("a > '0001-01-01 00:00:00+05:00'", {"a": datetime(1, 1, 1)}, True),
        ("a = b", {"a": datetime(2026, 1, 1), "b": datetime(2026, 1, 1, tzinfo=UTC)}, True),
        ("a < b", {"a": datetime(2026, 1, 1), "b": None}, None),
    ],
)
def test_a_filter_decides_at_the_bounds_of_types(text: str, row: dict[str, Any], result: bool | None) -> None:
    assert taken(text, row) is result


MOMENTS = st.datetimes(
    timezones=st.one_of(
        st.none(),
        st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
    )
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.integers(-6000, 6000).map(lambda power: Decimal(f"1e{power}")),
    st.text(max_size=3),
    MOMENTS,
    MOMENTS.map(str),
    st.dates(),
    st.binary(max_size=3),
    st.just(timedelta(1)),
    st.just({"a": 1}),
    st.just(("a",)),
)


@given(left=VALUES, right=VALUES, sign=st.sampled_from(SIGNS))
def test_any_two_values_compare_or_are_told_not_to(left: Any, right: Any, sign: str) -> None:
    try:
        found = compared(sign, left, right)
    except FilterFault:
        return
    assert (found is None) is (left is None or right is None)


@given(one=MOMENTS, other=MOMENTS, day=st.dates())
def test_times_compare_always(one: datetime, other: datetime, day: date) -> None:
    for text in (one, str(one)):
        assert order(text, other) == -order(other, text)
    assert order(str(day), day) == 0
