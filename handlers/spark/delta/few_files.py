"""Rewrites only those files of a Delta table that have changed keys, and writes files with statistics."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from handlers.spark.delta.arrow_rows import fitted, places_of, within, without
from handlers.spark.delta.data_files import parquet_dataset
from handlers.spark.log.stores.interface import Files
from handlers.spark.rows.parquet_files import has_former_dates, writing

if TYPE_CHECKING:
    import deltalake

_TAIL_BYTES = 8 * 2**20
_TAIL_ROWS = 200_000
"""The smallest files, up to this size together, are rewritten by each commit, so files stay few."""
_MOST_BYTES = 64 * 2**20
"""The most bytes of other files that a commit rewrites."""
_MOST_KEYS = 2_000_000
"""The most rows whose keys are read to find these files."""
_LONGEST = 32
"""The longest text in statistics. Spark cuts longer ones there."""
_MOST_COLUMNS = 32
"""Number of columns with statistics, as in Spark."""
_DIGITS_OF_DOUBLES = 15


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file of a table."""

    path: str
    """Relative to the table."""
    size: int
    rows: int
    bounds: Mapping[str, tuple[Any, Any]]
    """Column -> the least and the greatest value, if they are certain."""


class Rewrite(NamedTuple):
    """What a commit replaces."""

    removed: Sequence[TableFile]
    written: Sequence[pa.Table]
    """The rows of each new file."""

    @property
    def size(self) -> int:
        """Bytes of the replaced files."""
        return sum(each.size for each in self.removed)


def files_of(table: deltalake.DeltaTable, key: Sequence[str]) -> Sequence[TableFile] | None:
    """Return a table's files, with the bounds of its key. None if it does not say all that a commit needs."""
    adds = pa.table(table.get_add_actions(flatten=True))
    if adds.num_rows and ("num_records" not in adds.column_names or adds["num_records"].null_count):
        return None
    if any(set("% :") & set(each) for each in adds["path"].to_pylist()):
        return None  # the log has them in another form
    found = []
    for add in adds.select([each for each in adds.column_names if _is_wanted(each, key)]).to_pylist():
        bounds = {each: (add.get(f"min.{each}"), add.get(f"max.{each}")) for each in key}
        certain = {each: pair for each, pair in bounds.items() if all(map(_is_certain, pair))}
        found.append(TableFile(add["path"], add["size_bytes"], add["num_records"], certain))
    return found


def _is_wanted(column: str, key: Sequence[str]) -> bool:
    kind, _, name = column.partition(".")
    # A dot may also begin a field of a struct.
    is_bound = kind in ("min", "max") and name in key and "." not in name
    return is_bound or column in ("path", "size_bytes", "num_records")


def _is_certain(bound: Any) -> bool:
    """Whether all writers write such a bound exactly. Times and decimals are cut, and so are long texts."""
    return isinstance(bound, int) or (isinstance(bound, str) and len(bound) < _LONGEST)


@dataclass(frozen=True, slots=True)
class FewFiles:
    """Finds out which files of a table a commit replaces, and with which rows."""

    files: Files
    path: str
    """The table's folder."""
    schema: pa.Schema
    """The table's columns."""
    key: Mapping[str, str]
    """A column's name in the table -> in the changes."""
    most_memory: int
    """The most bytes of rows in memory."""

    def rewrite(
        self, found: Sequence[TableFile], changes: pa.Table, is_kept: pa.ChunkedArray
    ) -> Rewrite | None:
        """Replace the files with changed keys. Returns None if they are too many, too large, or not for
        Arrow.

        `changes`: the last change of each key. `is_kept`: which of them is no delete. Raises ValueError,
        OSError and what Arrow raises."""
        tail, others = _divided(found)
        bounds = {name: _bounds(changes.column(own)) for name, own in self.key.items()}
        others = [each for each in others if _may_have(each, bounds)]
        if sum(each.rows for each in others) > _MOST_KEYS:
            return None
        touched: list[tuple[Sequence[TableFile], pa.Array]] = []
        taken: set[int] = set()
        for each in others:
            keys = self._read([each], list(self.key))
            if keys is None:
                return None
            if len(places := places_of(changes, keys, self.key)):
                # A key that is in several files, which only other writers can cause, becomes one row.
                touched.append(([each], pa.array(set(places.to_pylist()) - taken, pa.int64())))
                taken.update(places.to_pylist())
        if sum(each.size for [each], _ in touched) > _MOST_BYTES:
            return None
        every = pa.array(range(changes.num_rows), pa.int64())
        touched.append((tail, every.filter(pc.invert(pc.is_in(every, pa.array(taken, pa.int64()))))))
        written, left = [], self.most_memory
        for some, places in touched:
            there = self._read(some, self.schema.names)
            if there is None or (left := left - there.nbytes) < 0:
                return None
            new = changes.take(places).filter(is_kept.take(places))
            old = without(there, changes, self.key)
            rows = pa.concat_tables([fitted(each, self.schema) for each in (old, new)])
            if rows.num_rows:
                written.append(rows)
        return Rewrite([each for some, _ in touched for each in some], written)

    def _read(self, some: Sequence[TableFile], names: Sequence[str]) -> pa.Table | None:
        """Return these columns of the files. None if they take too much memory, or are for Spark."""
        own = pa.schema([self.schema.field(name) for name in names])
        if not some:
            return own.empty_table()
        with ExitStack() as stack:
            paths = [f"{self.path}/{each.path}" for each in some]
            dataset = parquet_dataset(self.files, paths, self.schema, stack)
            if has_former_dates(dataset):
                return None
            return within(self.most_memory, dataset.to_batches(columns=list(names)), own)


def _divided(found: Sequence[TableFile]) -> tuple[list[TableFile], list[TableFile]]:
    """Return the smallest files, and the others."""
    size = rows = 0
    tail: list[TableFile] = []
    ordered = sorted(found, key=lambda each: each.size)
    for each in ordered:
        size, rows = size + each.size, rows + each.rows
        if size > _TAIL_BYTES or rows > _TAIL_ROWS:
            break
        tail.append(each)
    return tail, ordered[len(tail) :]


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        return None, None
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _may_have(file: TableFile, changed: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether a file may have one of the changed keys, which are within these bounds."""
    for name, (least, most) in file.bounds.items():
        low, high = changed[name]
        if low is not None and (high < least or most < low):
            return False
    return True


def put_file(files: Files, path: str, rows: pa.Table) -> tuple[str, int, str]:
    """Write a table's next file. Returns its name, its size in bytes, and its statistics as JSON. Raises what
    `files` raises."""
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="snappy", **writing(rows.schema))
    data = sink.getvalue()
    files.put(f"{path}/{name}", data)
    return name, data.size, statistics(rows)


def statistics(rows: pa.Table) -> str:
    """Return what Delta's log says about a file with these rows. Bounds that are not exact are left out:
    Spark skips files by them."""
    told: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for field, column in list(zip(rows.schema, rows.columns, strict=True))[:_MOST_COLUMNS]:
        if pa.types.is_nested(field.type):
            continue
        told["nullCount"][field.name] = column.null_count
        if column.null_count == len(column) or not has_exact_bounds(field.type):
            continue
        with suppress(ValueError, OverflowError):  # a year that Python does not have
            found = pc.min_max(column)
            least, most = _told(found["min"].as_py()), _told(found["max"].as_py())
            if not any(isinstance(each, str) and len(each) > _LONGEST for each in (least, most)):
                told["minValues"][field.name], told["maxValues"][field.name] = least, most
    return json.dumps(told, ensure_ascii=False)


def has_exact_bounds(arrow: pa.DataType) -> bool:
    """Whether bounds in Delta's log are exact. Decimals are doubles there. NaN is in none, although Spark
    takes it for the greatest number."""
    types = pa.types
    if types.is_decimal(arrow):
        return bool(arrow.precision <= _DIGITS_OF_DOUBLES)
    exact = (types.is_integer, types.is_string, types.is_date, types.is_timestamp)
    return any(each(arrow) for each in exact)


def _told(value: Any) -> Any:
    """Return a bound as Delta's log has it."""
    if isinstance(value, int | str):
        return value
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    return float(value)
