"""Rows of segments and of Delta tables in Arrow, merged with the same result as in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from handlers.spark.log.segment_file import RESTORE, BrokenLog, Segment, missing
from handlers.spark.log.stores.interface import Files, FilesError
from handlers.spark.rows.shape import Shape

_ORDER = "_binlane_order"
_ROWS_AT_ONCE = 4096
_TEXTS = frozenset((pa.string(), pa.large_string(), pa.string_view()))
_BYTES = frozenset((pa.binary(), pa.large_binary(), pa.binary_view()))


def are_plain(shape: Shape) -> bool:
    """Whether Arrow and Spark agree which keys are equal. They differ in -0.0 and NaN."""
    types = [shape.schema.field(column).type for column in shape.key]
    return bool(types) and not any(pa.types.is_floating(each) or pa.types.is_nested(each) for each in types)


def batches_of(files: Files, segment: Segment, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the segment's rows with these columns. Raises BrokenLog, and what the store raises."""
    try:
        with files.open(segment.path) as file:
            for batch in pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE):
                yield batch.select(schema.names).cast(schema)
    except FileNotFoundError:
        raise BrokenLog(missing(segment.path)) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and (error.errno is not None or isinstance(error, FilesError)):
            raise
        told = str(error).strip()
        raise BrokenLog(f"the rows of {segment.path} cannot be read ({told}): {RESTORE}") from None


def within(most: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table | None:
    """Read all rows into one table. Returns None, without reading on, if they take more than `most` bytes.
    `schema`: of the table if there are no rows."""
    read, size = [], 0
    for batch in batches:
        read.append(batch)
        size += batch.nbytes
        if size > most:
            return None
    return pa.Table.from_batches(read) if read else schema.empty_table()


def newest_of(changes: pa.Table, key: Sequence[str]) -> pa.Table | None:
    """Return the last change of each key. None if a key is null."""
    keys = changes.select(list(key))
    if any(column.null_count for column in keys.columns):
        return None
    numbered = keys.append_column(_ORDER, pa.array(range(len(keys)), pa.int64()))
    last = numbered.group_by(list(key)).aggregate([(_ORDER, "max")]).column(f"{_ORDER}_max")
    return changes.take(last.take(pc.sort_indices(last)))


def without(there: pa.Table, changes: pa.Table, key: Mapping[str, str]) -> pa.Table:
    """Return the rows whose keys have no change. `key`: a column's name in the table -> in the changes."""
    keys = there.select(list(key)).append_column(_ORDER, pa.array(range(len(there)), pa.int64()))
    changed = changes.select(list(key.values())).rename_columns(list(key))
    changed = changed.cast(keys.select(list(key)).schema)
    left = keys.join(changed, list(key), join_type="left anti").column(_ORDER)
    return there.take(left.take(pc.sort_indices(left)))


def places_of(changes: pa.Table, there: pa.Table, key: Mapping[str, str]) -> pa.Array:
    """Return the places of those changes whose keys are `there`, in order. `key`: as in `without`."""
    keys = there.select(list(key))
    changed = changes.select(list(key.values())).rename_columns(list(key)).cast(keys.schema)
    changed = changed.append_column(_ORDER, pa.array(range(len(changed)), pa.int64()))
    places = changed.join(keys, list(key), join_type="left semi").column(_ORDER).combine_chunks()
    return places.take(pc.sort_indices(places))


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return these columns in this order and with these types. Raises ValueError (of which ArrowInvalid is
    one) if a value would lose something, or if Spark may convert it differently."""
    names = {name.lower(): name for name in rows.column_names}
    picked = rows.select([names[name.lower()] for name in schema.names]).rename_columns(schema.names)
    for field in schema:
        if not field.nullable and picked.column(field.name).null_count:
            raise ValueError(f"{field.name} must not be null")
        if pa.types.is_nested(field.type) and "not null" in str(field.type):
            raise ValueError(f"{field.name} has parts that must not be null")
        if not holds_all(field.type, picked.schema.field(field.name).type):
            raise ValueError(
                f"{field.name} is {field.type}, but {picked.schema.field(field.name).type} was received"
            )
    return picked.cast(schema)


def holds_all(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether each value means the same in the wider type, whatever a session's time zone is."""
    types = pa.types
    if types.is_integer(narrow):
        return types.is_integer(wide) and bool(wide.bit_width >= narrow.bit_width)
    if types.is_decimal(narrow):
        return (
            types.is_decimal(wide) and _digits(wide) >= _digits(narrow) and bool(wide.scale >= narrow.scale)
        )
    if types.is_date(narrow):
        return types.is_date(wide) or (types.is_timestamp(wide) and wide.tz is None)
    if types.is_timestamp(narrow):
        return types.is_timestamp(wide) and (wide.tz is None) == (narrow.tz is None)
    if types.is_floating(narrow):
        return types.is_floating(wide) and bool(wide.bit_width >= narrow.bit_width)
    return bool(wide == narrow) or any({wide, narrow} <= kind for kind in (_TEXTS, _BYTES))


def _digits(decimal: pa.DataType) -> int:
    """Digits before the point."""
    return int(decimal.precision - decimal.scale)
