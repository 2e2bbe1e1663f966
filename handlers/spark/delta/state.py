"""What a merge must know about its table before it chooses how to merge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from handlers.spark.delta.commits.held_segments import delta_snapshot
from handlers.spark.delta.evolving import schema
from handlers.spark.delta.log_files import metadata_in_files
from handlers.spark.log.store_choice import AnySpark, files_for
from handlers.spark.runtime.java_process import java_class
from handlers.spark.table_ref import TableRef


@dataclass(frozen=True, slots=True)
class TableState:
    """A Delta table's newest version."""

    columns: StructType
    partitions: tuple[str, ...]
    """The partition columns."""
    properties: Mapping[str, str]
    bytes: int
    """The total size of its files."""
    features: frozenset[str]
    """Names of features of Delta's protocol."""


def look(session: SparkSession, ref: TableRef) -> TableState | None:
    """Return the table's present state, None without a table.

    Takes a few milliseconds if Delta can be asked directly (a table at a path, without Spark Connect).
    Otherwise runs two small queries."""
    snapshot = delta_snapshot(session, ref)
    if snapshot is not None:
        if snapshot.version() < 0:
            return None
        metadata = snapshot.metadata()
        known = snapshot.sizeInBytesIfKnown()
        as_java = java_class(session, "scala.jdk.javaapi.CollectionConverters").asJava
        return TableState(
            StructType.fromJson(json.loads(metadata.schemaString())),
            tuple(as_java(metadata.partitionColumns())),
            dict(as_java(metadata.configuration())),
            int(known.get() if known.isDefined() else snapshot.sizeInBytes()),
            frozenset(as_java(snapshot.protocol().readerAndWriterFeatureNames())),
        )
    columns = schema(session, ref)
    if columns is None:
        return None
    [detail] = session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()
    columns = _with_notes(session, detail.location) or columns
    partitions, features = tuple(detail.partitionColumns), frozenset(detail.tableFeatures)
    return TableState(columns, partitions, detail.properties, detail.sizeInBytes, features)


def _with_notes(session: SparkSession, location: str) -> StructType | None:
    """Return the columns with Delta's metadata (such as generation expressions), which Spark's own schema
    leaves out. None if the catalog does not let users read the folder."""
    try:
        found = metadata_in_files(files_for(location, AnySpark(session)), location)
    except OSError:
        return None
    return None if found is None else StructType.fromJson(json.loads(found.schema_string))
