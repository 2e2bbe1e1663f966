"""Source column types as DuckDB keeps them: https://duckdb.org/docs/stable/sql/data_types/overview."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from handlers.mysql.types import MySQLType

__all__ = ["DUCKDB", "UBigInt", "interval_text"]

_MOST_DIGITS = 38


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


def _decimal(read: MySQLType) -> TypeEngine[Any]:
    """Without sizes DuckDB would take (18, 3), and round."""
    if not read.sizes or read.sizes[0] > _MOST_DIGITS:
        return sa.TEXT()
    return sa.NUMERIC(read.sizes[0], read.sizes[1] if len(read.sizes) > 1 else 0)


DUCKDB: Mapping[str, Callable[[MySQLType], TypeEngine[Any]]] = {
    "bigint": lambda read: UBigInt() if read.unsigned else sa.BIGINT(),
    "serial": lambda _: UBigInt(),
    "bit": lambda read: UBigInt() if read.sizes[:1] == (64,) else sa.BIGINT(),
    "decimal": _decimal,
    # Texts have no length.
    **dict.fromkeys(("char", "varchar"), lambda _: sa.TEXT()),
}
"""Name of a source's type -> DuckDB's, where PostgreSQL's is another."""
