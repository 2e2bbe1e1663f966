"""Which types Delta makes wider without a rewrite."""

from __future__ import annotations

import re

__all__ = ["DECIMAL", "INTEGERS", "can_widen"]

INTEGERS = {"tinyint": 0, "smallint": 1, "int": 2, "bigint": 3}
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def can_widen(old: str, new: str) -> bool:  # noqa: PLR0911 - one return for each kind
    """Whether Delta makes a column of one Spark type one of the other without a rewrite.

    https://docs.delta.io/delta-type-widening/#supported-type-changes
    """
    if old in INTEGERS and new in INTEGERS:
        return INTEGERS[old] < INTEGERS[new]
    if (old, new) in (("float", "double"), ("date", "timestamp_ntz")):
        return True
    if new == "double":
        return old in ("tinyint", "smallint", "int")
    wide, narrow = DECIMAL.fullmatch(new), DECIMAL.fullmatch(old)
    if wide is None:
        return False
    digits, scale = int(wide[1]), int(wide[2])
    if old in INTEGERS:
        return digits - scale >= (20 if old == "bigint" else 10)
    if narrow is None:
        return False
    return digits - scale >= int(narrow[1]) - int(narrow[2]) and scale >= int(narrow[2]) and old != new
