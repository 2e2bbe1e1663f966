"""The shape of a source table's rows, and the columns that binlane adds before the source's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

Mode = Literal["replica", "history", "changelog", "function"]

TIME = pa.timestamp("us", tz="UTC")
"""The type of source times."""
_OP = {"op": pa.string(), "source_time": TIME}
_PLACE = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "index": pa.int32()}
_ROW = {"row": pa.int32()}
HISTORY = {"valid_from": TIME, "valid_to": TIME, "current": pa.bool_(), "op": pa.string(), **_PLACE}
"""The added columns of a history's table."""
_ABSENT = {"absent": pa.list_(pa.string())}
_CHANGELOG = {**_OP, **_PLACE, "sql": pa.string()}
_KEYED: Mapping[Mode, Mapping[str, pa.DataType]] = {
    "replica": {**_OP, **_ABSENT},
    "history": {**_OP, **_PLACE, **_ROW, **_ABSENT},
    "changelog": _CHANGELOG,
    "function": _CHANGELOG,
}
_BEFORE = "before"
# Other names that are taken: a struct in segments, the columns of a history's table.
_OTHERS: Mapping[Mode, tuple[str, ...]] = {
    "replica": ("row",),
    "history": tuple(HISTORY),
    "changelog": (_BEFORE,),
    "function": (_BEFORE,),
}


def added_columns(mode: Mode, prefix: str, *, keyed: bool) -> dict[str, pa.DataType]:
    """Return the added columns with their types, without a changelog's `before`, whose type is the row's."""
    own = _KEYED[mode] if keyed or mode != "replica" else {**_KEYED[mode], **_ROW}
    return {prefix + name: arrow for name, arrow in own.items()}


def reserved_names(mode: Mode, prefix: str) -> frozenset[str]:
    """Lower-case names that no source column may have. Spark ignores case in names."""
    return frozenset((prefix + name).lower() for name in (*_KEYED[mode], *_OTHERS[mode]))


def log_schema(shape: Shape, *, mode: Mode, prefix: str) -> pa.Schema:
    """Return the columns of a segment with rows of this shape.

    A changelog contains the row before an update in a struct. Parquet has no structs without fields. So the
    struct is left out while the source's columns are unknown (DDL before the first row)."""
    made = shape.log_schemas.get((mode, prefix))
    if made is None:
        added = list(added_columns(mode, prefix, keyed=bool(shape.key)).items())
        if _BEFORE in _OTHERS[mode] and shape.schema.names:
            added.append((prefix + _BEFORE, pa.struct(list(shape.schema))))
        made = shape.log_schemas[mode, prefix] = pa.schema([*added, *shape.schema])
    return made


def shape_of_log(found: pa.Schema, key: tuple[str, ...], *, mode: Mode, prefix: str) -> Shape:
    """Return the shape of the rows in a segment with these columns and this key."""
    added = reserved_names(mode, prefix)
    return Shape(pa.schema([pa.field(f.name, f.type) for f in found if f.name.lower() not in added]), key)


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
