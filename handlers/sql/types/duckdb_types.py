"""DuckDB's own types, and its spelling of intervals: https://duckdb.org/docs/stable/sql/data_types/overview"""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa

_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?"
)
_UNITS = ("years", "months", "days", "hours", "minutes", "seconds")


def interval_text(value: Any) -> Any:
    """An interval in ISO 8601 as DuckDB reads it; anything else as it is.

    >>> interval_text("P1Y2M3DT0H0M-1.5S")
    '1 years 2 months 3 days 0 hours 0 minutes -1.5 seconds'
    """
    found = _INTERVAL.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    parts = [f"{count} {unit}" for count, unit in zip(found.groups(), _UNITS, strict=True) if count]
    return " ".join(parts) or "0 seconds"


class UBigInt(sa.BigInteger):
    """A whole number from 0 to 2^64 - 1."""

    __visit_name__ = "UBIGINT"
