"""Rows appended to a Delta table, which is made if there is none."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame

from handlers.spark.delta.evolving import exists, needs_mapping
from handlers.spark.delta.statements import literal
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import TableRef

__all__ = ["properties", "save"]


def properties(names: Iterable[str], options: SparkOptions) -> dict[str, str]:
    """The properties of a new table with these columns."""
    found = {"delta.columnMapping.mode": "name"} if needs_mapping(names) else {}
    for name, value in options.properties.items():
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def save(frame: DataFrame, ref: TableRef, options: SparkOptions) -> None:
    """In one commit, within `fenced`; properties that are not Delta's own are set by a second, once."""
    session = frame.sparkSession
    writer = frame.write.format("delta").mode("append")
    others: list[str] = []
    if not exists(session, ref):
        for name, value in properties(frame.columns, options).items():
            if name.startswith("delta."):
                writer = writer.option(name, value)
            else:
                others.append(f"{literal(name)} = {literal(value)}")
        there = {name.casefold(): name for name in frame.columns}
        partitions = [there[name.casefold()] for name in options.partition_by if name.casefold() in there]
        if partitions:
            writer = writer.partitionBy(*partitions)
        schema = ref.sql.rpartition(".")[0]
        if ref.path is None and schema:
            session.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    if ref.path is None:
        writer.saveAsTable(ref.sql)
    else:
        writer.save(ref.path)
    if others:
        session.sql(f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({', '.join(others)})")
