"""What a source table's rows look like."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The source's columns, as they are kept."""

    schema: pa.Schema
    """In the source's order, without the columns that binlane adds."""
    key: tuple[str, ...]
    """The columns of the primary key; none: a table without one."""
