"""How long a decimal may be: a short text such as `1e30000000` must not become megabytes of digits."""

from __future__ import annotations

from decimal import Decimal

MOST_DIGITS, MOST_FRACTION = 131_072, 16_383
"""Before and behind the point: what PostgreSQL's `numeric` holds, the longest of all sources."""
MOST_ZEROS = 1_000
"""That an exponent may stand for before the point: no source writes its numbers so."""
_USUAL = 300


class BeyondBounds(ArithmeticError, ValueError):
    """A number that no source holds."""


def bounded(value: Decimal) -> Decimal:
    """The number itself. Raises BeyondBounds for one that would be longer than any source's, written out."""
    magnitude = value.adjusted()
    if -_USUAL < magnitude < _USUAL:
        return value
    # What is behind the point's first zeros was in the text that the number came in: it costs nothing more.
    exponent = value.as_tuple().exponent
    zeros = exponent if isinstance(exponent, int) else 0
    if -MOST_FRACTION <= magnitude < MOST_DIGITS and zeros <= MOST_ZEROS:
        return value
    raise BeyondBounds(f"no number of any source: its exponent is {magnitude}")


def digits(value: Decimal) -> str:
    """The number without an exponent. Raises BeyondBounds."""
    return format(bounded(value), "f")
