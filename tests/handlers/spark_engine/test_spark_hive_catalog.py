"""Tables in a Hive metastore (here in Derby): any Spark of it reads them by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_lake import Lake, change
from spark_sessions import SHARED, SparkKeeper

pytestmark = [pytest.mark.soak, pytest.mark.long]


def test_a_replica_in_a_metastore_outlives_its_worker(spark_keeper: SparkKeeper, tmp_path: Path) -> None:
    hive = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{tmp_path}/metastore;create=true",
    }
    settings = {**SHARED, "conf": {**SHARED["conf"], **hive}}
    for number in (1, 2):  # another process, and the same metastore
        spark_keeper.get(settings)
        lake = Lake(tmp_path, table="{database}.{table}", partition_by=["name"] if number == 1 else [])
        try:
            lake.take(change(10 * number, {"id": number, "name": f"n{number}"}))
            lake.take(change(10 * number + 1, {"id": 3, "name": f"n{number}"}))
            statement = f"ALTER TABLE orders ADD COLUMN c{number} int DEFAULT {number}"
            lake.take(change(10 * number + 2, None, None, op="ddl", sql=statement))
            lake.merge()
            found = lake.spark.sql("SELECT * FROM shop.orders ORDER BY id").collect()
            detail = lake.spark.sql("DESCRIBE DETAIL shop.orders").collect()[0]
            assert detail.partitionColumns == ["name"]
            assert lake.spark.catalog.tableExists("shop.orders")
        finally:
            lake.close()
            spark_keeper.stop()
    assert [tuple(row) for row in found] == [(1, "n1", 1, 2), (2, "n2", None, 2), (3, "n2", 1, 2)]
