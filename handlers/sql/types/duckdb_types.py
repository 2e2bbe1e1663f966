"""Source column types as DuckDB keeps them: https://duckdb.org/docs/stable/sql/data_types/overview."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine

from handlers.mysql.types import SHAPES, MySQLType

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


def _float(read: MySQLType) -> TypeEngine[Any]:
    # FLOAT(25) to FLOAT(53) are doubles; FLOAT(7,4) is not, its numbers are digits.
    is_double = len(read.sizes) == 1 and read.sizes[0] > 24
    return sa.DOUBLE_PRECISION() if is_double else sa.REAL()


def _bit(read: MySQLType) -> TypeEngine[Any]:
    return UBigInt() if read.sizes[:1] == (64,) else sa.BIGINT()


def _wider(read: MySQLType, own: type[TypeEngine[Any]], next_: type[TypeEngine[Any]]) -> TypeEngine[Any]:
    return next_() if read.unsigned else own()


_BLOBS = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector", *SHAPES)

DUCKDB: Mapping[str, Callable[[MySQLType], TypeEngine[Any]]] = {
    "tinyint": lambda _: sa.SMALLINT(),
    "smallint": lambda read: _wider(read, sa.SMALLINT, sa.INTEGER),
    "mediumint": lambda _: sa.INTEGER(),
    "int": lambda read: _wider(read, sa.INTEGER, sa.BIGINT),
    "bigint": lambda read: _wider(read, sa.BIGINT, UBigInt),
    "serial": lambda _: UBigInt(),
    "bit": _bit,
    "year": lambda _: sa.SMALLINT(),
    "decimal": _decimal,
    "float": _float,
    "double": lambda _: sa.DOUBLE_PRECISION(),
    "date": lambda _: sa.DATE(),
    "datetime": lambda _: postgresql.TIMESTAMP(timezone=False),
    "timestamp": lambda _: postgresql.TIMESTAMP(timezone=True),
    # MySQL's TIME runs from -838:59:59 to 838:59:59.
    **dict.fromkeys(("time", "interval"), lambda _: postgresql.INTERVAL()),
    "json": lambda _: postgresql.JSON(),
    "set": lambda _: postgresql.ARRAY(sa.TEXT()),
    "boolean": lambda _: sa.BOOLEAN(),
    "uuid": lambda _: postgresql.UUID(as_uuid=False),
    **dict.fromkeys(_BLOBS, lambda _: postgresql.BYTEA()),
}
"""Name of a source's type -> DuckDB's; all others are texts, which have no length there."""
