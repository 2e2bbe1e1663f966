"""Checks if a Delta table is as binlane creates it: commits may then ignore what only Spark supports."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import deltalake

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
_FORMER = frozenset((b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"))
"""Spark notes these in a file with dates of the former calendar: Spark 3 or later, if it is set to LEGACY."""


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


def is_small(table: deltalake.DeltaTable, most_bytes: int, most_rows: int) -> bool:
    """Whether its files are small, and state their numbers of rows."""
    adds = pa.table(table.get_add_actions(flatten=True))
    if not adds.num_rows:
        return True
    if "num_records" not in adds.column_names:
        return False
    counts = adds.column("num_records")
    size, rows = pc.sum(adds.column("size_bytes")).as_py(), pc.sum(counts).as_py()
    return not counts.null_count and size <= most_bytes and rows <= most_rows


def has_former_dates(dataset: Any) -> bool:
    """Whether a file of Arrow's `dataset` may have dates of the former calendar, which only Spark reads as
    they are. Raises OSError."""
    files = [file.physical_schema.metadata or {} for file in dataset.get_fragments()]
    return any(_FORMER & file.keys() or file.get(b"org.apache.spark.version", b"3") < b"3" for file in files)


def _notes(schema: Any) -> Iterator[str]:
    """Yield the metadata keys of columns and nested columns."""
    if isinstance(schema, dict):
        yield from schema.get("metadata", ())
        for each in schema.values():
            yield from _notes(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _notes(each)
