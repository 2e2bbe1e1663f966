"""Bounds on the length of decimals: a short text such as `1e30000000` must not become megabytes of digits."""

from __future__ import annotations

from decimal import Decimal

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
