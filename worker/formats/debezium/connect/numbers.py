"""Decimals and other exact numbers of Kafka Connect's JSON. Numbers too long for any source are refused."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from functools import cache
from typing import Any

from handlers.values.decimals import MOST_FRACTION, MOST_ZEROS, BeyondBounds, bounded

# Wide enough for PostgreSQL's longest numbers, which have 147,455 digits.
EXACT = Context(prec=150_000, traps=[Inexact, InvalidOperation, Overflow])
_MOST_BYTES, _MOST_INTEGER_BYTES = 61_300, 64
"""Most bytes of such a decimal, and of an integer."""
_FEW_BITS = 4_096
"""Most bits that are converted in one step. Python's time for it grows with the square of the bits."""


def unscaled(value: bytes) -> int:
    """Read a java.math.BigInteger (two's complement, big endian). Raises ValueError if it is too long."""
    if len(value) > _MOST_INTEGER_BYTES:
        raise ValueError("longer than an integer of any source")
    return int.from_bytes(value, "big", signed=True)


def scaled(scale: int) -> Callable[[bytes], Decimal]:
    """Make a reader of `org.apache.kafka.connect.data.Decimal` with `scale` digits after the point.

    Raises BeyondBounds for a scale that no source has. The reader raises it for a number that is too long."""
    if not -MOST_ZEROS <= scale <= MOST_FRACTION:
        raise BeyondBounds(f"a decimal with a scale of {scale}")
    times, from_bytes, unit = EXACT.multiply, int.from_bytes, Decimal(1).scaleb(-scale)

    def read(value: bytes) -> Decimal:
        if len(value) > _MOST_BYTES:
            raise BeyondBounds(f"a decimal of {len(value)} bytes")
        number = from_bytes(value, "big", signed=True)
        if len(value) <= _FEW_BITS // 8:
            return times(unit, number)
        return times(unit, _long(number, 1 << number.bit_length().bit_length()))

    return read


def _long(number: int, bits: int) -> Decimal:
    """Convert a number of up to `bits` bits (a power of two) in halves."""
    if bits <= _FEW_BITS:
        return Decimal(number)
    half = bits >> 1
    low = _long(number & ((1 << half) - 1), half)
    return EXACT.add(EXACT.multiply(_long(number >> half, half), _power_of_two(half)), low)


@cache
def _power_of_two(bits: int) -> Decimal:
    return EXACT.power(2, bits)


def digits_of(value: Any) -> str:
    """The digits of a plain JSON number. Raises ValueError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("no number")  # noqa: TRY004 - as for any value of the wrong type here
    if isinstance(value, Decimal):
        return str(bounded(value))
    return repr(value) if isinstance(value, float) else str(value)
