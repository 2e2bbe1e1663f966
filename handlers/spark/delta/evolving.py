"""What a Delta table is now, and changes of its columns when the source's change without DDL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.spark.delta.commits.held_segments import delta_snapshot
from handlers.spark.delta.log_files import metadata_in_files
from handlers.spark.log.store_choice import AnySpark, files_for
from handlers.spark.log.stores.interface import Files
from handlers.spark.rows.spark_types import can_widen, holds
from handlers.spark.runtime.errors import says_no_table
from handlers.spark.runtime.java_process import java_class
from handlers.spark.table_ref import NAMES_MAPPED, TYPES_WIDENED, TableRef, needs_mapping, quoted

# Before pyspark 4.2, to_arrow_schema has no such argument: moments are in UTC.
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}

_log = get_logger("spark")


def spark_schema(arrow: pa.Schema) -> StructType:
    """Return the types as the tables have them. A datetime without a zone stays one."""
    return from_arrow_schema(arrow, prefer_timestamp_ntz=True)


def arrow_schema(columns: StructType) -> pa.Schema:
    """Return the types as rows have them. A moment is in UTC."""
    return to_arrow_schema(columns, **_IN_UTC)


def schema(session: SparkSession, ref: TableRef) -> StructType | None:
    """Return the table's columns, None without a table. Raises what Spark raises if it cannot say."""
    try:
        return session.table(ref.sql).schema
    except AnalysisException as error:
        if says_no_table(error):
            return None
        raise


def evolve(session: SparkSession, ref: TableRef, arrow: pa.Schema) -> None:
    """Add the columns that the table lacks, and widen those that are too narrow. Does nothing without a
    table.

    Narrower values fit. Raises Rejected for any other change of a type, and for columns of the
    table that must not be null and that the rows lack."""
    table = schema(session, ref)
    if table is None:
        return
    added, wider = lacking(ref, table, arrow)
    if needs_mapping(column.name for column in added):
        _set(session, ref, *NAMES_MAPPED)
    if wider:
        _set(session, ref, *TYPES_WIDENED)
    for column in wider:
        session.sql(f"ALTER TABLE {ref.sql} ALTER COLUMN {column.path} TYPE {column.type}")
        _log.info("delta_column_widened", table=str(ref), column=column.name, type=column.type)
    if added:
        columns = ", ".join(f"{column.path} {column.type}" for column in added)
        session.sql(f"ALTER TABLE {ref.sql} ADD COLUMNS ({columns})")
        _log.info("delta_columns_added", table=str(ref), columns=[column.name for column in added])


def sql_type(kind: DataType) -> str:
    """Return a type as SQL reads it. `simpleString` does not quote the names in a struct."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quoted(one.name)}: {sql_type(one.dataType)}' for one in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{sql_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
    return kind.simpleString()


class Column(NamedTuple):
    """A column of rows that the table lacks, or that is too narrow in it."""

    path: str
    """For statements: quoted, with the names of enclosing structs."""
    name: str
    type: str


def lacking(ref: TableRef, table: StructType, arrow: pa.Schema) -> tuple[list[Column], list[Column]]:
    """Return the columns that a table lacks, and those that are too narrow. Raises like `evolve`."""
    wanted = spark_schema(arrow)
    names = {field.name.lower() for field in wanted.fields}
    for field in table.fields:
        if not field.nullable and field.name.lower() not in names:
            raise Rejected(
                f"column {field.name!r} of {ref} must not be null, but the source has no such column: make "
                "it nullable (ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL), or give the handler another "
                "table"
            )
    added: list[Column] = []
    wider: list[Column] = []
    _compare(table, wanted, "", ref=ref, added=added, wider=wider)
    return added, wider


def _compare(
    table: StructType,
    wanted: StructType,
    inside: str,
    *,
    ref: TableRef,
    added: list[Column],
    wider: list[Column],
) -> None:
    known = {field.name.lower(): field for field in table.fields}
    for field in wanted.fields:
        kept = known.get(field.name.lower())
        own = field.name if kept is None else kept.name
        column = Column(inside + quoted(own), field.name, sql_type(field.dataType))
        if kept is None:
            added.append(column)
        elif isinstance(kept.dataType, StructType) and isinstance(field.dataType, StructType):
            _compare(kept.dataType, field.dataType, f"{column.path}.", ref=ref, added=added, wider=wider)
        elif _must_widen(kept.dataType, field, ref):
            wider.append(column)


def _must_widen(kept: DataType, field: StructField, ref: TableRef) -> bool:
    there, wanted = kept.simpleString(), field.dataType.simpleString()
    if kept == field.dataType or holds(there, wanted):
        return False
    if can_widen(there, wanted):
        return True
    raise Rejected(
        f"column {field.name!r} is {there} in {ref}, but the source's type is now kept as {wanted}, which "
        "cannot hold the other's values: name the type to keep in `columns`, change the column in the table, "
        "or give the handler another table"
    )


def _set(session: SparkSession, ref: TableRef, name: str, value: str) -> None:
    if not has_property(properties(session, ref), name, value):
        session.sql(f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ('{name}' = '{value}')")


def properties(session: SparkSession, ref: TableRef) -> dict[str, str]:
    return {row.key: row.value for row in session.sql(f"SHOW TBLPROPERTIES {ref.sql}").collect()}


def has_property(found: Mapping[str, str], name: str, value: str) -> bool:
    """Whether a table has a property. Column mapping by id includes mapping by name."""
    return found.get(name) in (value, "id")


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
