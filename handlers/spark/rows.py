"""Changes as the rows of a changelog table: one Arrow table for each run of changes of one shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from handlers.api import Change
from handlers.spark.column_types import STRING, ColumnType, column_type, text

__all__ = ["ADDED_COLUMNS", "Run", "UnfitValue", "runs"]

ADDED_COLUMNS: Mapping[str, pa.DataType] = {
    "op": pa.string(),
    "source_time": pa.timestamp("us", tz="UTC"),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "index": pa.int32(),
    "old_key": pa.string(),
    "sql": pa.string(),
}
"""What binlane adds to a row, before the row's own columns; the names follow the prefix (`_op`)."""


class UnfitValue(ValueError):
    """A value that its column's type cannot hold; the message says where it is."""


class Run(NamedTuple):
    """Consecutive changes of a batch with the same columns and types."""

    changes: Sequence[Change]
    rows: pa.Table


def runs(changes: Sequence[Change], prefix: str) -> Iterator[Run]:
    """The changes' rows, in order. A batch is one run unless its table's columns change in the middle.

    Raises UnfitValue, also for a source column that has the name of one that binlane adds.
    """
    for types, group in groupby(changes, lambda change: change.types):
        run = list(group)
        yield Run(run, _table(run, types or {}, prefix))


def old_key(change: Change) -> str | None:
    """The primary key's values before an update that changed them, as a JSON object; else None."""
    before, after, key = change.before, change.after, change.key_columns
    if before is None or after is None or not key:
        return None
    if all(before.get(column) == after.get(column) for column in key):
        return None
    return msgspec.json.encode({column: before.get(column) for column in key}, enc_hook=text).decode("utf-8")


def _table(changes: Sequence[Change], types: Mapping[str, str], prefix: str) -> pa.Table:
    rows = [change.before if change.after is None else change.after for change in changes]
    added = {
        "op": [change.op for change in changes],
        # Milliseconds -> Arrow's microseconds.
        "source_time": [change.source_time_ms * 1000 for change in changes],
        "topic": [change.topic for change in changes],
        "partition": [change.partition for change in changes],
        "offset": [change.offset for change in changes],
        "index": [change.index for change in changes],
        "old_key": [old_key(change) for change in changes],
        "sql": [change.sql for change in changes],
    }
    arrays = {f"{prefix}{name}": pa.array(added[name], type_) for name, type_ in ADDED_COLUMNS.items()}
    columns = dict.fromkeys(types)
    for row in rows:
        if row is not None and row.keys() != columns.keys():
            columns.update(dict.fromkeys(row))
    taken = {name.lower() for name in arrays}
    for column in columns:
        if column.lower() in taken:
            raise UnfitValue(
                f"the source has a column {column!r}, which is also the name of one that binlane adds: "
                f"set `prefix` to something else than {prefix!r}"
            )
        kept = column_type(types[column]) if column in types else STRING
        values = [None if row is None else row.get(column) for row in rows]
        arrays[column] = _array(values, kept, column, types.get(column), changes)
    return pa.table(arrays)


def _array(
    values: list[Any], kept: ColumnType, column: str, type_text: str | None, changes: Sequence[Change]
) -> pa.Array:
    convert = kept.convert
    try:
        if convert is not None:
            return pa.array([None if value is None else convert(value) for value in values], kept.arrow)
        return pa.array(values, kept.arrow)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError, OverflowError):
        for value, change in zip(values, changes, strict=True):
            _check(value, kept, f"column {column!r} ({type_text or 'no type'})", change)
        raise


def _check(value: Any, kept: ColumnType, column: str, change: Change) -> None:
    try:
        pa.array([value if value is None or kept.convert is None else kept.convert(value)], kept.arrow)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError, OverflowError) as error:
        raise UnfitValue(
            f"{column} holds {str(value)[:60]!r} at {change.topic}[{change.partition}] offset "
            f"{change.offset}, which does not fit {kept.arrow}: {error}"
        ) from error
