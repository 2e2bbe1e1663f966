"""Which of Spark's types can hold the values of which others."""

from __future__ import annotations

import re

INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Integer type -> its greatest number of digits."""
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_OTHERS = {("date", "timestamp_ntz"), *((each, "double") for each in ("float", "tinyint", "smallint", "int"))}


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    few, many = _digits(narrow), _digits(wide)
    if few is None or many is None:
        return (narrow, wide) in _OTHERS
    return few[0] <= many[0] and few[1] <= many[1]


def can_widen(old: str, new: str) -> bool:
    """Whether Delta can change a column from one Spark type to the other without a rewrite.

    https://docs.delta.io/delta-type-widening/#supported-type-changes"""
    many = _digits(new)
    if many is not None and (old in INTEGERS) != (new in INTEGERS):
        return old in INTEGERS and many[0] >= (20 if old == "bigint" else 10)
    return old != new and holds(new, old)


def _digits(type_: str) -> tuple[int, int] | None:
    """Digits of an exact number before and after the point."""
    if type_ in INTEGERS:
        return INTEGERS[type_], 0
    found = DECIMAL.fullmatch(type_)
    return None if found is None else (int(found[1]) - int(found[2]), int(found[2]))
