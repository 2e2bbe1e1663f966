"""Delta tables as binlane creates them: made without Spark in one commit, and recognized, because commits to
them may ignore what only Spark supports."""

from __future__ import annotations

import importlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa

from handlers.logs import get_logger
from handlers.spark.delta.commits.commit_files import note_of_version
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.few_files import has_exact_bounds, put_file
from handlers.spark.delta.statements import MADE, needs_mapping
from handlers.spark.log.stores.interface import AlreadyThere, Files
from handlers.spark.rows.column_types import USUAL
from handlers.spark.rows.shape import Mode
from handlers.spark.table_ref import TableRef

if TYPE_CHECKING:
    import deltalake

_log = get_logger("spark")

_FEATURES = frozenset(("timestampNtz", "appendOnly", "invariants"))
"""Delta features of tables that binlane creates, and features that these commits do not affect."""
_PROPERTIES = frozenset(
    (
        *("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"),
        *("delta.enableExpiredLogCleanup", "delta.feature.timestampNtz"),
        *("delta.minReaderVersion", "delta.minWriterVersion"),
    )
)
"""Table properties that do not affect how a commit is made."""
_PLAIN_INTERVAL = re.compile(r"(?i)interval \d+ (second|minute|hour|day|week)s?")
"""Intervals that delta-rs reads as Spark does."""


_P = ParamSpec("_P")
_T = TypeVar("_T")
_U = TypeVar("_U")


def declining(otherwise: _U) -> Callable[[Callable[_P, _T]], Callable[_P, _T | _U]]:
    """Return a decorator: if delta-rs panics, the result is `otherwise`. A panic is no Exception, so it would
    end the thread."""

    def decorated(do: Callable[_P, _T]) -> Callable[_P, _T | _U]:
        @wraps(do)
        def done(*args: _P.args, **kwargs: _P.kwargs) -> _T | _U:
            try:
                return do(*args, **kwargs)
            except BaseException as error:
                if type(error).__name__ != "PanicException":
                    raise
                _log.warning("delta_rs_panicked", doing=do.__name__, error=str(error))
                return otherwise

        return done

    return decorated


def plain_table(path: str) -> deltalake.DeltaTable | None:
    """Return the table if it exists and has no feature that only Spark supports."""
    # The import takes half a second, so only users of this option pay for it.
    rs = importlib.import_module("deltalake")
    try:
        table: deltalake.DeltaTable = rs.DeltaTable(path)
    except (importlib.import_module("deltalake.exceptions").DeltaError, OSError):
        return None  # Spark reports what is wrong with it, if anything is
    protocol, metadata = table.protocol(), table.metadata()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    is_known = protocol.min_writer_version <= 2 or (
        protocol.min_writer_version == 7 and features <= _FEATURES
    )
    own = {name: value for name, value in metadata.configuration.items() if name.startswith("delta.")}
    intervals = [value for name, value in own.items() if name.endswith("RetentionDuration")]
    is_plain = (
        own.keys() <= _PROPERTIES
        and all(_PLAIN_INTERVAL.fullmatch(str(each)) for each in intervals)
        and not metadata.partition_columns
        and set(_notes(json.loads(table.schema().to_json()))) <= {"comment"}
    )
    return table if is_known and is_plain else None


def has_features_for(table: deltalake.DeltaTable, columns: pa.Schema) -> bool:
    """Whether such columns need no feature that the table lacks."""
    is_needed = any("timestamp[us]" in str(each.type) for each in columns)
    return not is_needed or _FEATURE in (table.protocol().writer_features or ())


def _notes(schema: Any) -> Iterator[str]:
    """Yield the metadata keys of columns and nested columns."""
    if isinstance(schema, dict):
        yield from schema.get("metadata", ())
        for each in schema.values():
            yield from _notes(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _notes(each)


_FEATURE = "timestampNtz"
"""The feature of each table that binlane creates (`runtime.conf`)."""


def can_be_made(schema: pa.Schema) -> bool:
    """Whether binlane itself creates such columns, and their names need no mapping."""
    names = {name.lower() for name in schema.names}
    return bool(names) and len(names) == len(schema.names) and _are_usual(schema)


def _are_usual(fields: Iterable[pa.Field]) -> bool:
    return all(not needs_mapping([field.name]) and _is_usual(field.type) for field in fields)


def _is_usual(arrow: pa.DataType) -> bool:
    return _are_usual(arrow) if pa.types.is_struct(arrow) else arrow in USUAL or pa.types.is_decimal128(arrow)


def make_table(files: Files, ref: TableRef, rows: pa.Table, note: CommitNote, *, mode: Mode) -> str:
    """Create a table with these rows. Returns Delta's id of the table.

    By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions
    `rows`: see `can_be_made`. Raises MergeConflict if another writer creates it meanwhile, and what `files`
    raises."""
    commit, table_id = uuid.uuid4().hex, str(uuid.uuid4())
    # Half a second of import, for whoever has asked for it.
    from deltalake import Schema  # noqa: PLC0415 (see above)

    schema = str(Schema.from_arrow(rows.schema).to_json())
    name, size, told = put_file(files, ref.path or "", rows)
    first = {
        "commitInfo": {
            "timestamp": _now(),
            "operation": "CREATE TABLE AS SELECT",
            "operationParameters": {},
            "isBlindAppend": True,
            "engineInfo": "binlane",
            "userMetadata": note.to_json(ref.app_id, commit),
        },
        "metaData": {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": MADE if mode == "replica" else {},
            "createdTime": _now(),
        },
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [_FEATURE],
            "writerFeatures": [_FEATURE, "appendOnly", "invariants"],
        },
        "txn": {"appId": ref.app_id, "version": note.first, "lastUpdated": _now()},
        "add": {
            "path": name,
            "partitionValues": {},
            "size": size,
            "modificationTime": _now(),
            "dataChange": True,
            "stats": told,
        },
    }
    lines = [json.dumps({kind: action}, ensure_ascii=False) + "\n" for kind, action in first.items()]
    try:
        files.put(f"{ref.path}/_delta_log/{0:020d}.json", "".join(lines).encode())
    except AlreadyThere as error:
        raise MergeConflict(f"{ref}: another writer has just created it") from error
    # Spark's rename on a local disk may have replaced this commit.
    found = note_of_version(files, ref.path or "", 0)
    if found is None or found.get("commit") != commit:
        raise MergeConflict(f"{ref}: another writer has just created it")
    return table_id


def _now() -> int:
    return int(time.time() * 1000)


def no_upkeep(rs: Any) -> Any:
    """Return a commit's settings that leave checkpoints and cleaning to the caller."""
    return rs.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def exact_bounds(rs: Any, schema: pa.Schema) -> Any:
    """Return how files are written: with bounds only for columns whose bounds delta-rs writes exactly. It
    writes decimals' bounds as doubles, and Spark skips files by their bounds. A dictionary would make Spark
    skip -0.0 when it looks for 0.0."""
    kept = rs.ColumnProperties(statistics_enabled="CHUNK")
    left = rs.ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
    return rs.WriterProperties(
        compression="SNAPPY",
        default_column_properties=left,
        column_properties={field.name: kept for field in schema if has_exact_bounds(field.type)},
    )
