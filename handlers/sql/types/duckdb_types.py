"""DuckDB's own types: https://duckdb.org/docs/stable/sql/data_types/overview"""

from __future__ import annotations

import sqlalchemy as sa


class UBigInt(sa.BigInteger):
    """A whole number from 0 to 2^64 - 1."""

    __visit_name__ = "UBIGINT"
