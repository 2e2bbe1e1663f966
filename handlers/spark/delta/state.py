"""What a merge must know about its table before it chooses how to merge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from handlers.spark.delta.commits.held_segments import delta_snapshot
from handlers.spark.delta.evolving import schema
from handlers.spark.delta.log_files import metadata_in_files
from handlers.spark.log.store_choice import AnySpark, files_for
from handlers.spark.log.stores.interface import Files
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
    # Spark's schema leaves out Delta's metadata, such as generation expressions. A catalog may not let users
    # read the folder.
    with suppress(OSError):
        found = look_in_files(files_for(detail.location, AnySpark(session)), detail.location)
        columns = columns if found is None else found.columns
    partitions, features = tuple(detail.partitionColumns), frozenset(detail.tableFeatures)
    return TableState(columns, partitions, detail.properties, detail.sizeInBytes, features)


def look_in_files(files: Files, path: str | None) -> TableState | None:
    """Return the table's columns, partitions and properties, and nothing else. None: ask Spark, or there is
    no table. Raises what `files` raises."""
    found = None if path is None else metadata_in_files(files, path)
    if found is None:
        return None
    columns = StructType.fromJson(json.loads(found.schema_string))
    return TableState(columns, tuple(found.partition_columns), found.configuration, 0, frozenset())
