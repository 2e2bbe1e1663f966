"""The shape of a source table's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa


@dataclass(frozen=True)
class Shape:
    """The source's columns, as they are kept. A table has the same shape for many batches, so it caches
    values that each batch needs."""

    schema: pa.Schema
    """In the source's order, without the columns that binlane adds."""
    key: tuple[str, ...]
    """The primary key's columns. Empty for a table without one."""

    def has(self, names: Sequence[str], types: Sequence[pa.DataType]) -> bool:
        """Whether these are its columns, in this order."""
        return self._names == names and self._types == types

    @cached_property
    def _names(self) -> list[str]:
        return list(self.schema.names)

    @cached_property
    def _types(self) -> list[pa.DataType]:
        return list(self.schema.types)

    @cached_property
    def log_schemas(self) -> dict[tuple[str, str], pa.Schema]:
        """Cached schemas of its segments, by mode and prefix. See `log_schema`."""
        return {}
