"""Finds the rows of an Iceberg table that changes concern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions

_is: Any = expressions  # its classes have other signatures than their types say
_FEW = 200
"""Number of values up to which PyIceberg compares each of them with a file's bounds."""


def names_in(schema: pa.Schema, wanted: Sequence[str]) -> dict[str, str]:
    """Return the table's spelling of columns -> their name in the changes."""
    there = {name.casefold(): name for name in schema.names}
    return {there[name.casefold()]: name for name in wanted}


def among(keys: pa.Table) -> Any:
    """Return an expression that is true of each row with one of these keys. It is true of others, too: files
    are skipped by it, and never rows."""
    conditions: list[Any] = []
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        if not _has_order(column.type) or column.null_count or not len(column):
            continue
        distinct = pc.unique(column)
        if len(distinct) <= _FEW:
            conditions.append(_is.In(name, tuple(distinct.to_pylist())))
        else:
            bounds = pc.min_max(column).as_py()
            conditions += [
                _is.GreaterThanOrEqual(name, bounds["min"]),
                _is.LessThanOrEqual(name, bounds["max"]),
            ]
    return reduce(_is.And, conditions) if conditions else _is.AlwaysTrue()


def _has_order(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(arrow)
        or types.is_decimal(arrow)
        or types.is_string(arrow)
        or types.is_date(arrow)
        or types.is_timestamp(arrow)
    )


def matched(there: pa.Table, keys: pa.Table) -> pa.ChunkedArray:
    """Return for each row whether `keys` has its key. A null is no key. The columns of `keys` are those of
    the table."""
    order = "_binlane_order"
    numbered = there.select(keys.column_names).append_column(order, pa.array(range(len(there)), pa.int64()))
    found = numbered.join(keys, keys.column_names, join_type="left semi").column(order)
    return pc.is_in(numbered.column(order), value_set=found)


def key_tuples(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows' values in these columns."""
    return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def picked(columns: Mapping[str, Sequence[int | None]], rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return values of rows, chosen column by column. None chooses null."""
    return {name: rows.column(name).take(pa.array(places, pa.int64())) for name, places in columns.items()}
