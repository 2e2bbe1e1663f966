"""Convert numbers of the source's driver and of Spark to a common form (see `forms`)."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from handlers.mysql.values import single


def bit(value: Any) -> int:
    """Read MySQL's BIT, which the driver returns as bytes."""
    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    return int.from_bytes(bytes(value), "big") if is_bytes else int(value)


def whole(value: Any) -> int | float | Decimal:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes")
    if isinstance(value, float | Decimal) and value != int(value):
        return value
    return int(value)


def number(value: Any) -> Decimal:
    if isinstance(value, bytes | bytearray):
        return Decimal(int.from_bytes(value, "big"))
    found = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not found.is_finite():
        raise ValueError("not a number that Spark can store")
    # normalize() would round to the context's digits.
    digits = format(found, "f")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return Decimal("0" if digits in ("-0", "") else digits)


def double(value: Any) -> float:
    return float(value) + 0.0  # removes the minus of zero


def exact_double(value: Any) -> float | Decimal:
    """Keep a number that a double would round."""
    rounded = double(value)
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return exact if exact.is_finite() and Decimal(repr(rounded)) != exact else rounded


def short_double(value: Any) -> float | Decimal:
    """Keep a double that has more than the seven digits of a single."""
    exact = exact_double(value)
    rounded = single_precision(exact)
    return rounded if exact in (rounded, float(f"{rounded:.7g}")) else exact


def single_precision(value: Any) -> float:
    exact = float(value)
    return single(exact) + 0.0 if exact - exact == 0 else exact


def is_single(source: sa.types.TypeEngine[Any]) -> bool:
    if isinstance(source, mysql.FLOAT):
        return source.precision is None or source.scale is not None or source.precision <= 24
    return isinstance(source, sa.REAL) and not isinstance(source, mysql.REAL)


def json_number(digits: str) -> int | float | Decimal:
    found = float(digits)
    if abs(found) == math.inf or (not found and Decimal(digits)):
        return Decimal(digits)  # beyond a double's range
    return int(found) if found.is_integer() else found
