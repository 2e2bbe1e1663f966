"""Values beyond usual bounds. A short text such as `1e30000000` must not become megabytes of digits. Only
PostgreSQL has dates and times outside Python's calendar."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from functools import total_ordering
from typing import Any

MOST_DIGITS, MOST_FRACTION = 131_072, 16_383
"""Digits before and after the point: the bounds of PostgreSQL's `numeric`, the longest of all sources."""
MOST_ZEROS = 1_000
"""The most zeros before the point that an exponent may add. No source writes its numbers with more."""
_USUAL = 300


class BeyondBounds(ArithmeticError, ValueError):
    """A number that is longer than any source can store."""


def bounded(value: Decimal) -> Decimal:
    """Return the number itself. Raises BeyondBounds if it is longer, written out, than in any source."""
    magnitude = value.adjusted()
    if -_USUAL < magnitude < _USUAL:
        return value
    # The zeros count, but not the digits: the text that the number was read from already contained them.
    exponent = value.as_tuple().exponent
    zeros = exponent if isinstance(exponent, int) else 0
    if -MOST_FRACTION <= magnitude < MOST_DIGITS and zeros <= MOST_ZEROS:
        return value
    raise BeyondBounds(f"beyond the numbers of any source: its exponent is {magnitude}")


def digits(value: Decimal) -> str:
    """Format the number without an exponent. Raises BeyondBounds."""
    return format(bounded(value), "f")


_INFINITE = {"-infinity": (-2, 0, ""), "infinity": (2, 0, "")}
_TEXT = re.compile(
    r"(?P<year>\d{4,7})-(?P<day>\d\d-\d\d)"
    r"(?:(?P<clock> \d\d:\d\d:\d\d(?:\.(?P<fraction>\d{1,6}))?)(?:\+00)?)?(?P<era> BC)?",
    re.ASCII,
)


@total_ordering
class BeyondCalendar:
    """A date or time that `date` and `datetime` cannot represent: infinity, a year before 1 or after 9999.

    It is neither a date, a time nor a text, so no code can confuse it with one. `str` formats it as
    PostgreSQL does: `infinity`, `0044-03-15 BC`, `20000-01-01 12:00:00`, with a zone `20000-01-01
    12:00:00+00`. It compares with dates, times and its own kind, as times in UTC. Immutable."""

    __slots__ = ("_order", "_text", "has_clock", "microsecond")

    def __init__(self, text: str) -> None:
        """Raise ValueError if the text has another form, or if its year is between 1 and 9999 AD."""
        self._text = text
        self.has_clock = False
        """Whether it has a time of day other than midnight."""
        self.microsecond = 0
        order = _INFINITE.get(text)
        if order is None:
            found = _TEXT.fullmatch(text)
            year = 0 if found is None else int(found["year"])
            if found is None or not year or (found["era"] is None and year <= date.max.year):
                raise ValueError(f"not a time beyond the calendar: {text!r}")
            self.microsecond = int(f"{found['fraction'] or '':0<6}")
            self.has_clock = bool((found["clock"] or "").strip(" 0:."))
            rest = found["day"] + (found["clock"] if self.has_clock else "")
            order = (-1, -year, rest) if found["era"] else (1, year, rest)
        self._order = order

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"BeyondCalendar({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BeyondCalendar) and self._order == other._order

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, BeyondCalendar):
            return self._order < other._order
        return self._order[0] < 0 if isinstance(other, date) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._order)

    def __reduce__(self) -> tuple[type[BeyondCalendar], tuple[str]]:
        return BeyondCalendar, (self._text,)
