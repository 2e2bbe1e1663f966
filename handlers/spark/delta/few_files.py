"""Rewrites only those files of a Delta table that have changed keys, and writes files with statistics."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from handlers.spark.delta.arrow_rows import fitted, places_of, within, without
from handlers.spark.delta.log_actions import Bounds, Snapshot, parquet_dataset
from handlers.spark.delta.table_columns import ArrowColumns
from handlers.spark.log.stores.interface import Files
from handlers.spark.rows.parquet_files import has_former_dates, has_other_names, writing

_TAIL_BYTES = 8 * 2**20
_TAIL_ROWS = 200_000
"""The smallest files, up to this size together, are rewritten by each commit, so files stay few."""
_MOST_BYTES = 64 * 2**20
"""The most bytes of other files that a commit rewrites."""
_MOST_KEYS = 2_000_000
"""The most rows whose keys are read to find these files."""
_LONGEST = 32
"""The longest text in statistics. Spark cuts longer ones there, by units of UTF-16."""
_MOST_COLUMNS = 32
"""Number of columns with statistics, as in Spark."""
_read_bounds = msgspec.json.Decoder(Bounds).decode
_DIGITS_OF_DOUBLES = 15


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file of a table."""

    path: str
    """As the log has it."""
    size: int
    rows: int
    bounds: Mapping[str, tuple[Any, Any]]
    """Column -> the least and the greatest value, if they are certain."""


class Rewrite(NamedTuple):
    """What a commit replaces."""

    removed: Sequence[TableFile]
    written: Iterable[pa.Table]
    """The rows of each new file."""

    @property
    def size(self) -> int:
        """Bytes of the replaced files."""
        return sum(each.size for each in self.removed)


def files_of(table: Snapshot, columns: ArrowColumns, key: Collection[str]) -> Sequence[TableFile] | None:
    """Return a table's files, with the bounds of its key. None if its log does not say all that a commit
    needs."""
    in_files = dict(zip(columns.named.names, columns.filed.names, strict=True))
    ordered = [name for name in key if _has_order(columns.named.field(name).type)]
    found = []
    for path, file in table.files.items():
        if file.rows is None or file.stats is None or file.partition or file.deletion_vector is not None:
            return None
        told = _read_bounds(file.stats)
        least, most = told.min_values or {}, told.max_values or {}
        bounds = {name: (least.get(in_files[name]), most.get(in_files[name])) for name in ordered}
        certain = {name: pair for name, pair in bounds.items() if all(map(_is_certain, pair))}
        found.append(TableFile(path, file.size, file.rows, certain))
    return found


def _has_order(kind: pa.DataType) -> bool:
    """Whether all writers order such values alike. Bounds of other types may look like these."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


def _is_certain(bound: Any) -> bool:
    """Whether all writers write such a bound exactly. Times and decimals are cut, and so are long texts: that
    of a former Delta may then be below a value with emojis."""
    return isinstance(bound, int) or (isinstance(bound, str) and len(bound.encode()) < _LONGEST)


@dataclass(frozen=True, slots=True)
class FewFiles:
    """Finds out which files of a table a commit replaces, and with which rows."""

    files: Files
    path: str
    """The table's folder."""
    columns: ArrowColumns
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
            keys = self.read([each], list(self.key))
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
            there = self.read(some, self.columns.named.names)
            if there is None or (left := left - there.nbytes) < 0:
                return None
            new = changes.take(places).filter(is_kept.take(places))
            old = without(there, changes, self.key)
            rows = pa.concat_tables([fitted(each, self.columns.named) for each in (old, new)])
            if rows.num_rows:
                written.append(rows)
        return Rewrite([each for some, _ in touched for each in some], written)

    def added(self, found: Sequence[TableFile], rows: pa.Table) -> Rewrite | None:
        """Add rows to the smallest files. Returns and raises like `rewrite`."""
        tail, _ = _divided(found)
        there = self.read(tail, self.columns.named.names)
        if there is None or there.nbytes + rows.nbytes > self.most_memory:
            return None
        return Rewrite(tail, [pa.concat_tables([there, fitted(rows, self.columns.named)])])

    def filled(self, found: Sequence[TableFile], values: Mapping[str, pa.Scalar]) -> Rewrite | None:
        """Give each row these values. Returns and raises like `rewrite`."""
        if sum(each.size for each in found) > _MOST_BYTES:
            return None
        left, written = self.most_memory, []
        for each in found:
            rows = self.read([each], self.columns.named.names)
            if rows is None or (left := left - rows.nbytes) < 0:
                return None
            for name, value in values.items():
                field = self.columns.named.field(name)
                rows = rows.set_column(
                    rows.schema.get_field_index(name), field, pa.repeat(value.cast(field.type), rows.num_rows)
                )
            written.append(rows)
        return Rewrite(found, written)

    def read(self, some: Sequence[TableFile], names: Sequence[str]) -> pa.Table | None:
        """Return these columns of the files. None if they take too much memory, or are for Spark."""
        named, filed = self.columns
        own = pa.schema([named.field(name) for name in names])
        if not some:
            return own.empty_table()
        in_files = [filed.field(named.get_field_index(name)) for name in names]
        with ExitStack() as stack:
            paths = [each.path for each in some]
            dataset = parquet_dataset(self.files, paths, filed, stack, self.path)
            if has_former_dates(dataset) or has_other_names(dataset):
                return None
            batches = dataset.to_batches(columns=[each.name for each in in_files])
            found = within(self.most_memory, batches, pa.schema(in_files))
        return None if found is None else found.rename_columns(own.names).cast(own)


def exact_scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Return a value as Spark would cast its text. Raises ValueError, and what Arrow raises, if that is not
    certain."""
    is_zoneless = isinstance(value, datetime) and value.tzinfo is None
    if pa.types.is_float32(type_) or (is_zoneless and getattr(type_, "tz", None)):
        raise ValueError(f"{value!r} depends on how it is cast to {type_}")
    found = pa.scalar(value, type_)
    if found.as_py() != value:
        raise ValueError(f"{value!r} is another value as {type_}")
    return found


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
    if not _has_order(column.type):
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
