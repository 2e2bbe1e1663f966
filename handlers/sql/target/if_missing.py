"""INSERT of rows some of which may be there."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite


def insert_if_missing(dialect: str, table: sa.Table) -> Any:
    """A statement that leaves rows whose key is there. `table` has the column `shard`."""
    match dialect:
        case "postgresql" | "duckdb":
            return postgresql.insert(table).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(table).on_conflict_do_nothing()
    # Not INSERT IGNORE, which would take other errors for warnings, too.
    return mysql.insert(table).on_duplicate_key_update(shard=table.c.shard)
