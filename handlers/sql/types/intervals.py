"""Texts of intervals in PostgreSQL and DuckDB."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from handlers.sql.types.driver_values import UnfitValue

UNITS = ("year", "month", "day", "hour", "minute", "second")
ISO = re.compile(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?")
_POSTGRESQL = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:(-?\d+) days? ?)?(?:(-?\d+):(\d+):([\d.]+))?"
)
_SECONDS = {"hour": 3600, "minute": 60}


def refuse_below(values: Sequence[Any], *, lowest: str, others: Callable[[Sequence[Any]], None]) -> None:
    """Call `others`, then raise UnfitValue for parts that an `interval` down to `lowest` would cut."""
    others(values)
    if lowest == "second":
        return
    for value in values:
        if isinstance(value, timedelta):
            step = timedelta(seconds=_SECONDS.get(lowest, 0))
            is_cut = bool(value % step if step else value)
        else:
            text = str(value or "")
            found = ISO.fullmatch(text) or _POSTGRESQL.fullmatch(text)
            below = (None,) if found is None else found.groups()[UNITS.index(lowest) + 1 :]
            is_cut = found is None or any((part or "").strip("-0.") for part in below)
        if is_cut:
            raise UnfitValue(f"{value} may have parts below the {lowest}, which the column would lose")


def interval_text(value: Any) -> Any:
    """Convert an interval in ISO 8601 to DuckDB's syntax. Return any other value unchanged.

    >>> interval_text("P1Y2M3DT0H0M-1.5S")
    '1 years 2 months 3 days 0 hours 0 minutes -1.5 seconds'
    """
    found = ISO.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    parts = [f"{count} {unit}s" for count, unit in zip(found.groups(), UNITS, strict=True) if count]
    return " ".join(parts) or "0 seconds"
