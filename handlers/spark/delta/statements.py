"""Parts of SQL statements."""

from __future__ import annotations

from collections.abc import Iterable

from handlers.spark.table_ref import quoted

__all__ = ["equal", "listed", "literal"]


def listed(names: Iterable[str], alias: str = "") -> str:
    """Columns, divided by commas."""
    before = f"{alias}." if alias else ""
    return ", ".join(before + quoted(name) for name in names)


def equal(names: Iterable[str], left: str, right: str, *, null_safe: bool = False) -> str:
    """That two rows are equal in these columns."""
    sign = "<=>" if null_safe else "="
    return " AND ".join(f"{left}.{quoted(name)} {sign} {right}.{quoted(name)}" for name in names)


def literal(value: str) -> str:
    """A string as SQL writes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
