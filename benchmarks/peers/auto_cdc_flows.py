"""The pipeline of AUTO CDC: for each table a stream of its files, a streaming table, and the flow.

spark-pipelines imports this file. The environment variable AUTO_CDC contains its arguments as JSON: the
folder of the files, the tables, and column -> Spark's type.
"""

from __future__ import annotations

import json
import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

arguments = json.loads(os.environ["AUTO_CDC"])
columns: dict[str, str] = arguments["columns"]
data = ", ".join(f"`{name}`: string" for name in columns)
schema = f"id bigint, type string, data array<struct<{data}>>"
spark = SparkSession.active()


def replicate(table: str) -> None:
    @dp.temporary_view(name=f"{table}_changes")
    def changes() -> DataFrame:
        row = col("data")[0]
        typed = [row[name].cast(kind).alias(name) for name, kind in columns.items()]
        files = spark.readStream.schema(schema).json(f"{arguments['source']}/{table}")
        return files.select(col("id").alias("change"), "type", *typed)

    dp.create_streaming_table(table)
    dp.create_auto_cdc_flow(
        target=table,
        source=f"{table}_changes",
        keys=["id"],
        sequence_by="change",
        apply_as_deletes="type = 'DELETE'",
        except_column_list=["change", "type"],
        stored_as_scd_type=1,
    )


for each in arguments["tables"]:
    replicate(each)
