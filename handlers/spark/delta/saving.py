"""Rows appended to a Delta table, which is made if there is none."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame

from handlers.spark.delta.evolving import exists, needs_mapping
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import TableRef

__all__ = ["properties", "save"]


def properties(names: Iterable[str], options: SparkOptions) -> dict[str, str]:
    """The properties of a new table with these columns."""
    found = {"delta.enableTypeWidening": "true"}
    if needs_mapping(names):
        found["delta.columnMapping.mode"] = "name"
    for name, value in options.properties.items():
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def save(frame: DataFrame, ref: TableRef, options: SparkOptions) -> None:
    """In one commit; within `fenced`."""
    writer = frame.write.format("delta").mode("append")
    if not exists(frame.sparkSession, ref):
        for name, value in properties(frame.columns, options).items():
            writer = writer.option(name, value)
        there = {name.casefold(): name for name in frame.columns}
        partitions = [there[name.casefold()] for name in options.partition_by if name.casefold() in there]
        if partitions:
            writer = writer.partitionBy(*partitions)
        schema = ref.sql.rpartition(".")[0]
        if ref.path is None and schema:
            frame.sparkSession.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    if ref.path is None:
        writer.saveAsTable(ref.sql)
    else:
        writer.save(ref.path)
