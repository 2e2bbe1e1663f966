"""Parses Spark's type texts, as in the option `columns`.

Importing this module is cheap: a configuration is checked without Spark and Arrow."""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_DIGITS = 38
"""Of a decimal."""


class SparkType(NamedTuple):
    """One type: `decimal(12,2)` is ("decimal", (12, 2))."""

    name: str
    sizes: tuple[int, int] | None = None
    """A decimal's precision and scale."""


# Each group starts with Spark's own name: https://spark.apache.org/docs/latest/sql-ref-datatypes.html
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
    """Parse a type text. Raises ValueError, which lists the allowed types."""
    wanted = re.sub(r"\s+", "", text).lower()
    name = _NAMES.get(wanted)
    if name is not None:
        return SparkType(name)
    found = _DECIMAL.fullmatch(wanted)
    if found is None:
        raise ValueError(f"{text!r} is no type of Spark that a column can have; allowed: {ALLOWED}")
    precision, scale = int(found[1]), int(found[2])
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(f"{text!r}: a decimal has 1 to {MOST_DIGITS} digits, and no more after the point")
    return SparkType("decimal", (precision, scale))
