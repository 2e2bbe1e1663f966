"""What a source table's rows look like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa


@dataclass(frozen=True)
class Shape:
    """The source's columns, as they are kept. A table has the same one for batch after batch, so what is
    asked for each of them is kept with it."""

    schema: pa.Schema
    """In the source's order, without the columns that binlane adds."""
    key: tuple[str, ...]
    """The columns of the primary key; none: a table without one."""

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
        """Of its segments, by mode and prefix, as far as they were made: see `log_schema`."""
        return {}
