"""Rows appended to a Delta table, which is made if there is none."""

from __future__ import annotations

from pyspark.sql import DataFrame

from handlers.spark.delta.commits import NO_NOTE, settings
from handlers.spark.delta.holding import exists
from handlers.spark.delta.properties import MADE, of_new_table
from handlers.spark.delta.statements import literal
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import TableRef

__all__ = ["save"]


def save(frame: DataFrame, ref: TableRef, options: SparkOptions) -> None:
    """In one commit, within `fenced`; properties that are not Delta's own are set by a second, once."""
    session = frame.sparkSession
    writer = frame.write.format("delta").mode("append")
    others: list[str] = []
    if not exists(session, ref):
        made = MADE if options.mode == "replica" else {}
        for name, value in (of_new_table(frame.columns, options.properties) | made).items():
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
        with settings(session, NO_NOTE):
            session.sql(f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({', '.join(others)})")
