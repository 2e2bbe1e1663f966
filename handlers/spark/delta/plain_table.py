"""Delta tables as binlane creates them: made without Spark in one commit, and recognized, because commits to
them may ignore what only Spark supports."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pyarrow as pa

from handlers.logs import get_logger
from handlers.spark.delta.checkpoints import duration_ms
from handlers.spark.delta.data_files import PHYSICAL_NAME
from handlers.spark.delta.evolving import spark_schema
from handlers.spark.delta.log_actions import Metadata, Snapshot
from handlers.spark.delta.statements import NAMES_MAPPED, TYPES_WIDENED, needs_mapping
from handlers.spark.delta.table_columns import ID, LAST_ID, TYPE_CHANGES, every
from handlers.spark.rows.column_types import USUAL

_log = get_logger("spark")

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
_OF_COLUMNS = frozenset(("comment", ID, PHYSICAL_NAME, TYPE_CHANGES))
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
        and all(each.get("metadata", {}).keys() <= _OF_COLUMNS for each in every(metadata.fields))
    )


def can_be_made(schema: pa.Schema) -> bool:
    """Whether binlane itself creates such columns, and their names need no mapping."""
    names = {name.lower() for name in schema.names}
    return bool(names) and len(names) == len(schema.names) and _are_usual(schema)


def _are_usual(fields: Iterable[pa.Field]) -> bool:
    return all(not needs_mapping([field.name]) and _is_usual(field.type) for field in fields)


def _is_usual(arrow: pa.DataType) -> bool:
    return _are_usual(arrow) if pa.types.is_struct(arrow) else arrow in USUAL or pa.types.is_decimal128(arrow)


def new_metadata(schema: pa.Schema, properties: dict[str, str], now_ms: int) -> Metadata:
    """Return the metadata of a new table with these columns. `schema`: see `can_be_made`."""
    table_id, columns = str(uuid.uuid4()), spark_schema(schema).json()
    return Metadata(columns, id=table_id, configuration=properties, created_time=now_ms)
