"""Creates a Delta table without Spark: one commit, with its first rows and the properties that Spark sets."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from handlers.spark.delta.commits.commit_files import note_of_version
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.statements import MADE, needs_mapping
from handlers.spark.log.stores.interface import AlreadyThere, Files
from handlers.spark.rows.column_types import USUAL
from handlers.spark.rows.parquet_files import writing
from handlers.spark.rows.shape import Mode
from handlers.spark.table_ref import TableRef

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="snappy", **writing(rows.schema))
    data = sink.getvalue()
    files.put(f"{ref.path}/{name}", data)
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
            "size": data.size,
            "modificationTime": _now(),
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.num_rows}),
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
