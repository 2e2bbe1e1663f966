"""Few and large files, and none that no version needs any more."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, shape

from handlers.spark.delta.commits.exactly_once import settings
from handlers.spark.delta.upkeep import optimize, vacuum
from handlers.spark.runtime.errors import SPARK_ERRORS

LOG = shape(id=pa.int32())


def put(table: Table, number: int) -> None:
    table.put(
        LOG, {"op": "insert", "id": number, "topic": "cdc", "partition": 0, "offset": number, "index": 0}
    )
    table.merge()


def files(table: Table) -> int:
    return int(table.sql("DESCRIBE DETAIL {t}").collect()[0].numFiles)


def on_disk(table: Table) -> int:
    return len(list(Path(table.path).glob("*.parquet")))


def test_files_stay_for_as_long_as_their_table_keeps_them(make_table: MakeTable) -> None:
    kept = "delta.deletedFileRetentionDuration"
    table = make_table(mode="changelog", properties={kept: "interval 30 days"})
    for number in range(2):
        put(table, number)
    assert optimize(table.spark, table.ref, 2)
    vacuum(table.spark, table.ref, 0)
    assert on_disk(table) == 3
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{kept}' = 'interval 0 seconds')")
    vacuum(table.spark, table.ref, 3600)
    assert on_disk(table) == 3
    vacuum(table.spark, table.ref, 0)
    assert on_disk(table) == 1


def test_rows_that_cannot_be_read_are_not_optimized_away(make_table: MakeTable) -> None:
    table = make_table(mode="changelog")
    for number in range(2):
        put(table, number)
    damaged = next(Path(table.path).glob("*.parquet"))
    data = damaged.read_bytes()
    damaged.write_bytes(data[: len(data) // 2])
    passed_over = {"spark.sql.files.ignoreCorruptFiles": "true"}
    with settings(table.spark, passed_over), pytest.raises(SPARK_ERRORS):
        optimize(table.spark, table.ref, 2)
    damaged.write_bytes(data)
    assert table.rows("id") == [(0,), (1,)]


# The same by a handler: spark_engine/test_spark_upkeep.py.
@pytest.mark.soak
def test_small_files_become_one_and_old_ones_go(make_table: MakeTable) -> None:
    table = make_table(mode="changelog")
    optimize(table.spark, table.ref, 2)
    vacuum(table.spark, table.ref, 3600)
    for number in range(3):
        put(table, number)
    optimize(table.spark, table.ref, 4)
    assert files(table) == 3
    assert optimize(table.spark, table.ref, 3)
    assert files(table) == 1
    assert not optimize(table.spark, table.ref, 3)
    vacuum(table.spark, table.ref, 3600)
    assert on_disk(table) == 4
    vacuum(table.spark, table.ref, 0)
    assert on_disk(table) == 1
    assert table.rows("id") == [(0,), (1,), (2,)]
    put(table, 3)
    assert table.merged == 4
    assert table.spark.conf.get("spark.databricks.delta.retentionDurationCheck.enabled") == "true"
