"""Delta tables as binlane creates them: made without Spark in one commit, and recognized, because commits to
them may ignore what only Spark supports."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from handlers.spark.delta.checkpoints import duration_ms
from handlers.spark.delta.data_files import PHYSICAL_NAME
from handlers.spark.delta.log_actions import Metadata, Protocol, Snapshot
from handlers.spark.delta.own_commit import NEW, with_features
from handlers.spark.delta.statements import NAMES_MAPPED, TYPES_WIDENED, needs_mapping
from handlers.spark.delta.table_columns import ID, LAST_ID, TYPE_CHANGES, ColumnChange, every, is_mapped
from handlers.spark.rows.column_types import USUAL

_FEATURES = frozenset(("timestampNtz", "appendOnly", "invariants", "columnMapping", "typeWidening"))
"""Delta features of tables that binlane creates, and features that these commits do not affect."""
_PROPERTIES = frozenset(
    (
        *("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"),
        *("delta.enableExpiredLogCleanup", "delta.feature.timestampNtz"),
        *("delta.minReaderVersion", "delta.minWriterVersion"),
        *(NAMES_MAPPED[0], LAST_ID, TYPES_WIDENED[0]),
    )
)
"""Table properties that do not affect how a commit is made."""
OF_COLUMNS = frozenset(("comment", ID, PHYSICAL_NAME, TYPE_CHANGES))
"""Column metadata that does not affect how a commit is made."""


def is_plain(table: Snapshot) -> bool:
    """Whether a table has no feature that only Spark supports."""
    protocol, metadata = table.protocol, table.metadata
    is_known = protocol.min_writer_version <= 2 or (
        protocol.min_writer_version == 7 and protocol.features <= _FEATURES
    )
    own = {name: value for name, value in metadata.configuration.items() if name.startswith("delta.")}
    intervals = [value for name, value in own.items() if name.endswith("RetentionDuration")]
    return (
        is_known
        and own.keys() <= _PROPERTIES
        and own.get(NAMES_MAPPED[0], "none") in ("none", NAMES_MAPPED[1])
        and all(duration_ms(each) is not None for each in intervals)
        and not metadata.partition_columns
        and metadata.format.get("provider") == "parquet"
        and all(each.get("metadata", {}).keys() <= OF_COLUMNS for each in every(metadata.fields))
    )


def can_be_made(schema: pa.Schema) -> bool:
    """Whether binlane itself creates such columns, and the names inside of them need no mapping."""
    names = {name.lower() for name in schema.names}
    return bool(names) and len(names) == len(schema.names) and all(_is_usual(each.type) for each in schema)


def _is_usual(arrow: pa.DataType) -> bool:
    if pa.types.is_struct(arrow):
        return all(not needs_mapping([each.name]) and _is_usual(each.type) for each in arrow)
    return arrow in USUAL or pa.types.is_decimal128(arrow)


def new_table(
    columns: Mapping[str, str | Mapping[str, Any]], properties: Mapping[str, str]
) -> tuple[Metadata, Protocol]:
    """Return a new table with these columns, as ColumnChange takes them. Raises ValueError."""
    made = ColumnChange([], dict(properties))
    for name, type_ in columns.items():
        made.add(name, type_)
    mapped = ("columnMapping",) if is_mapped(properties) else ()
    first = Metadata("", id=str(uuid.uuid4()), created_time=int(time.time() * 1000))
    return made.applied(first), with_features(NEW, mapped)
