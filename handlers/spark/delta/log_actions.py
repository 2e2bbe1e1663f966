"""A version of a Delta table, the actions of its log, and its rows without Spark, from the files named there.

By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from handlers.spark.log.stores.interface import Files, scheme_of
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.rows.column_types import SPARK_NAMES
from handlers.spark.rows.parquet_files import has_former_dates, has_other_names
from handlers.spark.table_ref import literal, quoted


class DataFile(NamedTuple):
    """One Parquet file of a table."""

    size: int
    """Bytes."""
    rows: int | None
    """Without deleted ones. None if the log does not say."""
    partition: Mapping[str, str | None]
    """The values of the partition columns, by the columns' names in files."""
    deletion_vector: DeletionVector | None
    """Which rows are deleted. None: none."""
    stats: str | None = None
    """What the log says about the file's values, as JSON, if it was asked for."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table, with its files."""

    version: int
    metadata: Metadata
    protocol: Protocol
    files: Mapping[str, DataFile]
    """By the path, as the log has it: relative to the table, URL-encoded."""
    writers: Mapping[str, int]
    """The identifiers of applications (`TableRef.app_id`) that record their commits, with the last number."""
    removed: Mapping[str, int]
    """Files of earlier versions, if they were asked for -> when they were removed, in milliseconds since
    1970."""
    commit: bytes = b""
    """The version's commit, which no other table has. Empty if its file was removed."""

    @property
    def rows(self) -> int | None:
        """None if the log does not say how many rows a file has."""
        counts = [each.rows for each in self.files.values() if each.rows is not None]
        return sum(counts) if len(counts) == len(self.files) else None

    @property
    def bytes(self) -> int:
        """The total size of its files."""
        return sum(each.size for each in self.files.values())


class Stats(msgspec.Struct, rename="camel"):
    num_records: int


class Bounds(msgspec.Struct, rename="camel"):
    """The least and greatest values of columns, by their names in the file."""

    min_values: dict[str, Any] | None = None
    max_values: dict[str, Any] | None = None


class DeletionVector(msgspec.Struct, rename="camel", frozen=True):
    storage_type: str
    path_or_inline_dv: str
    cardinality: int
    offset: int | None = None


class Add(msgspec.Struct, rename="camel"):
    path: str
    size: int
    stats: str | None = None
    partition_values: dict[str, str | None] = {}
    deletion_vector: DeletionVector | None = None


class Remove(msgspec.Struct, rename="camel"):
    path: str
    deletion_timestamp: int | None = None
    deletion_vector: DeletionVector | None = None


class Sidecar(msgspec.Struct):
    path: str


class Txn(msgspec.Struct, rename="camel"):
    app_id: str
    version: int


class Metadata(msgspec.Struct, rename="camel"):
    """A table's metadata, without its files."""

    schema_string: str
    """As JSON."""
    id: str = ""
    name: str | None = None
    description: str | None = None
    format: dict[str, Any] = msgspec.field(default_factory=lambda: {"provider": "parquet", "options": {}})
    partition_columns: list[str] = []
    configuration: dict[str, str] = {}
    created_time: int | None = None

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The columns as the log has them."""
        return list(json.loads(self.schema_string)["fields"])

    @property
    def columns(self) -> dict[str, Sequence[str]]:
        """Each with the names of its fields, if it is a struct."""
        return {each["name"]: _within(each["type"]) for each in self.fields}


class Protocol(msgspec.Struct, rename="camel"):
    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None

    @property
    def features(self) -> set[str]:
        return {*(self.reader_features or ()), *(self.writer_features or ())}


class CommitInfo(msgspec.Struct, rename="camel"):
    user_metadata: str | None = None
    operation: str | None = None
    operation_parameters: dict[str, Any] | None = None


class LastCheckpoint(msgspec.Struct):
    version: int


class Action(msgspec.Struct, rename="camel"):
    add: Add | None = None
    remove: Remove | None = None
    meta_data: Metadata | None = None
    protocol: Protocol | None = None
    sidecar: Sidecar | None = None
    txn: Txn | None = None
    commit_info: CommitInfo | None = None


read_action = msgspec.json.Decoder(Action).decode
read_last_checkpoint = msgspec.json.Decoder(LastCheckpoint).decode
read_stats = msgspec.json.Decoder(Stats).decode


def _within(kind: Any) -> Sequence[str]:
    is_struct = isinstance(kind, dict) and kind.get("type") == "struct"
    return [each["name"] for each in kind["fields"]] if is_struct else ()


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
    if re.search("date32|timestamp", str(schema.types)) and has_former_dates(dataset):
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
        return str(files.place(path)), LocalFileSystem()
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
