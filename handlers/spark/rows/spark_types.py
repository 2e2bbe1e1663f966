"""Spark's types: reads their texts (option `columns`), and says which hold the values of which others."""

from __future__ import annotations

import re

MOST_DIGITS = 38
"""Of a decimal."""
INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Integer type -> its greatest number of digits."""
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_OTHERS = {("date", "timestamp_ntz"), *((each, "double") for each in ("float", "tinyint", "smallint", "int"))}

# Spark's own names: https://spark.apache.org/docs/latest/sql-ref-datatypes.html
_TYPES = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"]
_TYPES += ["timestamp", "timestamp_ntz", "array<string>"]
_SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_SYNONYMS["timestamp_ltz"] = "timestamp"
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\((\d{1,3}),(\d{1,3})\)")
ALLOWED = ", ".join([*_TYPES[:-1], "decimal(precision,scale)", _TYPES[-1]])
"""For messages."""


def read_spark_type(text: str) -> str:
    """Return a type in Spark's own spelling. Raises ValueError, which lists the allowed types."""
    wanted = re.sub(r"\s+", "", text).lower()
    name = _SYNONYMS.get(wanted, wanted)
    if name in _TYPES:
        return name
    found = _DECIMAL.fullmatch(wanted)
    if found is None:
        raise ValueError(f"{text!r} is not a Spark type for columns; allowed: {ALLOWED}")
    precision, scale = int(found[1]), int(found[2])
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(f"{text!r}: a decimal has 1 to {MOST_DIGITS} digits, and no more after the point")
    return f"decimal({precision},{scale})"


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
