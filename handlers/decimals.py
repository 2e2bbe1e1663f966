"""How long a decimal may be: a short text such as `1e30000000` must not become megabytes of digits."""

from __future__ import annotations

from decimal import Decimal

__all__ = ["MOST_DIGITS", "BeyondBounds", "bounded", "digits"]

MOST_DIGITS = 131_072
"""Before the point, and of zeros behind it: what PostgreSQL's `numeric` holds, the longest of all sources."""


class BeyondBounds(ArithmeticError, ValueError):
    """A number that no source holds."""


def bounded(value: Decimal) -> Decimal:
    """The number itself. Raises BeyondBounds for one that would be longer than any source's, written out."""
    # What is behind the point's first zeros was in the text that the number came in: it costs nothing more.
    if -MOST_DIGITS <= value.adjusted() < MOST_DIGITS:
        return value
    raise BeyondBounds(f"no number of any source: its exponent is {value.adjusted()}")


def digits(value: Decimal) -> str:
    """The number without an exponent. Raises BeyondBounds."""
    return format(bounded(value), "f")
