"""Rows of segments and of Delta tables in Arrow, merged with the same result as in Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from handlers.spark.delta.log_actions import DataFile, Snapshot
from handlers.spark.log.segment_file import RESTORE, BrokenLog, Segment, missing
from handlers.spark.log.stores.interface import Files, FilesError, scheme_of
from handlers.spark.log.stores.local import LocalFiles, plain_path
from handlers.spark.rows.column_types import SPARK_NAMES
from handlers.spark.rows.parquet_files import has_former_dates, has_other_names
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import literal, quoted

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


PHYSICAL_NAME = "delta.columnMapping.physicalName"
_PADDED = re.compile(r"(?<!var)char\(")
"""In the metadata of a column with CHAR. Files may have shorter texts, which Spark pads on reading."""
SPELLED = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
"""Spark's types that Delta's log spells otherwise."""
_TYPES = {SPELLED.get(name, name): arrow for name, arrow in SPARK_NAMES.items()}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_FORMAT = ds.ParquetFileFormat(
    read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True),
)


class OnlySpark(RuntimeError):
    """A table has something that only Spark reads. The message says what, and what to do."""

    def __init__(self, table: str, what: str, advice: str = "") -> None:
        super().__init__(
            f"{table} {what}, which only Spark reads: use binlane.spark.current"
            + (advice and f"; or {advice}")
        )


def dataset_of(
    files: Files, path: str, snapshot: Snapshot, stack: ExitStack
) -> tuple[ds.Dataset, Mapping[str, str]]:
    """Return the rows of one version of the table at `path`, with the names in its files. Also return its
    columns: name -> SQL for it.

    Only the files' footers are read yet. `stack` closes the files. Raises OnlySpark,
    FileNotFoundError and what the store raises."""
    fields: list[dict[str, Any]] = json.loads(snapshot.metadata.schema_string)["fields"]
    mapping = snapshot.metadata.configuration.get("delta.columnMapping.mode", "none")
    if mapping not in ("none", "name"):
        raise OnlySpark(path, f"has column mapping by {mapping}")
    if any(each.deletion_vector is not None for each in snapshot.files.values()):
        raise OnlySpark(
            path, "has deletion vectors", f"run REORG TABLE delta.`{path}` APPLY (PURGE) in Spark"
        )
    for each in fields:
        if _PADDED.search(each.get("metadata", {}).get("__CHAR_VARCHAR_TYPE_STRING", "")):
            raise OnlySpark(path, f"has a column {each['name']} of CHAR")
    names = {each["name"]: _renamed(each) for each in fields}
    schema = pa.schema(
        [(physical_name(each), arrow_type(path, each["type"], is_top=True)) for each in fields]
    )
    own = set(snapshot.metadata.partition_columns)
    partitions = [schema.field(physical_name(each)) for each in fields if each["name"] in own]
    found = [
        _FORMAT.make_fragment(*_opened(files, path, name, stack), _values(partitions, file))
        for name, file in snapshot.files.items()
    ]
    if not found:
        return ds.dataset(schema.empty_table()), names
    dataset = ds.FileSystemDataset(found, schema, _FORMAT)
    if any(_has_times(each.type) for each in schema) and has_former_dates(dataset):
        raise OnlySpark(path, "has dates of the former calendar", "let Spark write its files anew")
    if has_other_names(dataset):
        raise OnlySpark(path, "has files with other capitals in names", "let Spark write its files anew")
    return dataset, names


def parquet_dataset(
    files: Files, paths: Sequence[str], schema: pa.Schema, stack: ExitStack, table: str = ""
) -> ds.Dataset:
    """Return the rows of these files. `table`: the folder of a table, if its log names them. Raises like
    `dataset_of`."""
    found = [_FORMAT.make_fragment(*_opened(files, table, path, stack)) for path in paths]
    return ds.FileSystemDataset(found, schema, _FORMAT)


def _opened(
    files: Files, table: str, name: str, stack: ExitStack
) -> tuple[str | pa.NativeFile, LocalFileSystem | None]:
    path = unquote(name)
    if not scheme_of(path) and not path.startswith("/"):
        path = f"{table}/{path}"
    if isinstance(files, LocalFiles):
        return str(plain_path(path)), LocalFileSystem()
    return stack.enter_context(files.open(path)), None


def _values(partitions: Sequence[pa.Field], file: DataFile) -> ds.Expression:
    """Return the values of the partition columns, which a file's rows do not contain."""
    expression = ds.scalar(True)
    for field in partitions:
        value = file.partition.get(field.name)
        own = ds.field(field.name)
        # Delta writes binary values as text, too.
        is_own = own.is_null() if value is None else own == pa.scalar(value).cast(field.type)
        expression = expression & is_own
    return expression


def physical_name(field: Mapping[str, Any]) -> str:
    return str(field.get("metadata", {}).get(PHYSICAL_NAME, field["name"]))


def _renamed(field: Mapping[str, Any]) -> str:
    """Return SQL for a column, with the table's names of the fields of a struct."""
    column, kind = quoted(physical_name(field)), field["type"]
    if not isinstance(kind, dict) or kind["type"] != "struct" or not _has_renamed(kind):
        return column
    values = (f"{literal(each['name'])}, {column}.{quoted(physical_name(each))}" for each in kind["fields"])
    return f"IF({column} IS NULL, NULL, named_struct({', '.join(values)}))"


def _has_renamed(struct: Mapping[str, Any]) -> bool:
    return any(physical_name(each) != each["name"] for each in struct["fields"])


def arrow_type(table: str, kind: Any, *, is_top: bool = False) -> pa.DataType:
    """Return Arrow's type for one of Delta's, with the names in the files. Raises OnlySpark."""
    if isinstance(kind, str):
        if found := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(found[1]), int(found[2]))
        if kind in _TYPES:
            return _TYPES[kind]
    elif kind["type"] == "array":
        return pa.list_(arrow_type(table, kind["elementType"]))
    elif kind["type"] == "map":
        return pa.map_(arrow_type(table, kind["keyType"]), arrow_type(table, kind["valueType"]))
    elif kind["type"] == "struct":
        if not is_top and _has_renamed(kind):
            raise OnlySpark(table, "has renamed fields inside of nested structs")
        return pa.struct([(physical_name(each), arrow_type(table, each["type"])) for each in kind["fields"]])
    raise OnlySpark(table, f"has a column of type {kind if isinstance(kind, str) else kind['type']}")


def _has_times(type_: pa.DataType) -> bool:
    return "date32" in str(type_) or "timestamp" in str(type_)
