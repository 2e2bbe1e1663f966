"""Spark's type texts, as the option `columns` takes them.

Importing this costs nothing: a configuration is checked without Spark and Arrow."""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_DIGITS = 38
"""Of a decimal."""


class SparkType(NamedTuple):
    """One type: `decimal(12,2)` is ("decimal", (12, 2))."""

    name: str
    sizes: tuple[int, int] | None = None
    """Of a decimal: precision and scale."""


# The first of each is the name that Spark shows: https://spark.apache.org/docs/latest/sql-ref-datatypes.html
_SPELLINGS = (
    ("boolean",),
    ("tinyint", "byte"),
    ("smallint", "short"),
    ("int", "integer"),
    ("bigint", "long"),
    ("float", "real"),
    ("double",),
    ("string",),
    ("binary",),
    ("date",),
    ("timestamp", "timestamp_ltz"),
    ("timestamp_ntz",),
    ("array<string>",),
)
_NAMES = {spelling: names[0] for names in _SPELLINGS for spelling in names}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\((\d{1,3}),(\d{1,3})\)")
ALLOWED = ", ".join([*(names[0] for names in _SPELLINGS[:-1]), "decimal(precision,scale)", _SPELLINGS[-1][0]])
"""For messages."""


def read_spark_type(text: str) -> SparkType:
    """Take a type text apart. Raises ValueError, which tells what is allowed."""
    wanted = re.sub(r"\s+", "", text).lower()
    name = _NAMES.get(wanted)
    if name is not None:
        return SparkType(name)
    found = _DECIMAL.fullmatch(wanted)
    if found is None:
        raise ValueError(f"{text!r} is not a Spark type for columns; allowed: {ALLOWED}")
    precision, scale = int(found[1]), int(found[2])
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(f"{text!r}: a decimal has 1 to {MOST_DIGITS} digits, and no more after the point")
    return SparkType("decimal", (precision, scale))
