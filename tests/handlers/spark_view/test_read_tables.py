"""Delta tables of all kinds are read without Spark as Spark reads them, or with a reason not at all."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from delta_reading import check_read
from view_lab import COLUMNS, HandMade, row, shape

from handlers.spark.delta.log_actions import OnlySpark
from handlers.spark.read.current import current
from handlers.spark.read.in_duckdb import read_at

Lake = Callable[..., HandMade]


def check(table: HandMade) -> None:
    check_read(current(table.spark, table.path), table.path)


def test_columns_that_were_renamed_dropped_added_and_widened(lake: Lake) -> None:
    orders = lake()
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true'"
    orders.table(
        "id INT, name STRING, gone INT, price DECIMAL(5,2), day DATE, tags ARRAY<STRING>",
        properties=f"TBLPROPERTIES ({mapped})",
    )
    t = orders.ref.sql
    for statement in (
        f"INSERT INTO {t} VALUES (1, 'one', 1, 1.5, date'1969-12-31', array('a', null))",
        f"INSERT INTO {t} VALUES (2, null, 2, 2, null, null)",
        f"ALTER TABLE {t} RENAME COLUMN name TO `the title`",
        f"ALTER TABLE {t} DROP COLUMN gone",
        f"ALTER TABLE {t} ADD COLUMN (name TIMESTAMP)",
        f"ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
        f"ALTER TABLE {t} ALTER COLUMN price TYPE DECIMAL(10,4)",
        f"ALTER TABLE {t} ALTER COLUMN day TYPE TIMESTAMP_NTZ",
        f"INSERT INTO {t} VALUES (4000000000, 't', 3.25, now(), array(), timestamp'2020-01-01 00:00:00')",
    ):
        orders.spark.sql(statement)
    check(orders)
    of = shape(id=pa.int64(), day=pa.timestamp("us"), price=pa.decimal128(10, 4))
    orders.put({"op": "upsert", "id": 2}, {"op": "delete", "id": 1}, of=of)
    check(orders)


def test_partitions_and_names_of_any_kind(lake: Lake) -> None:
    orders = lake("shop/a %20 {b}")
    orders.spark.sql(
        f"CREATE TABLE {orders.ref.sql} (id BIGINT, `a.b` STRING, day DATE, at TIMESTAMP, is BOOLEAN, "
        "n DECIMAL(9,2)) USING delta PARTITIONED BY (`a.b`, day, at, is, n)"
    )
    check(orders)
    orders.spark.sql(
        f"INSERT INTO {orders.ref.sql} VALUES (1, 'x y/%=', date'2020-02-29', "
        "timestamp'2020-01-01 00:00:00.5', true, 1.5), (2, null, null, null, null, null)"
    )
    check(orders)
    assert read_at(orders.path, ["a.b"]).num_rows == 2


def test_floats_keep_their_signs_and_are_found_by_any_zero_or_nan(lake: Lake) -> None:
    orders = lake()
    orders.table(
        "f FLOAT, d DOUBLE, n FLOAT", "('-0', '1', '-0')", "('NaN', '2', 'NaN')", "('3', '3', '-Infinity')"
    )
    check(orders)
    of = shape(("f",), f=pa.float32(), d=pa.float64(), n=pa.float32())
    for number in (-1.0, -0.0):
        rows = [{"op": "upsert", "f": f, "d": number, "n": number} for f in (0.0, float("nan"), 7)]
        orders.put(*rows, of=of)
    check(orders)
    assert [str(each) for each in read_at(orders.path, ["n"])["n"].to_pylist()].count("-0.0") == 3


@pytest.mark.soak
def test_deletion_vectors_are_for_spark_until_they_are_purged(lake: Lake) -> None:
    orders = lake()
    vectors = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    orders.table(COLUMNS, properties=vectors)
    orders.spark.sql(f"INSERT INTO {orders.ref.sql} SELECT id, 'n', 1 FROM range(0, 100, 1, 1)")
    orders.put(row(1, op="delete"))
    check(orders)
    orders.spark.sql(f"DELETE FROM {orders.ref.sql} WHERE id = 2")
    with pytest.raises(OnlySpark, match=r"has deletion vectors, which only Spark .*; or run REORG"):
        read_at(orders.path)
    orders.spark.sql(f"REORG TABLE {orders.ref.sql} APPLY (PURGE)")
    check(orders)


def test_a_changelog_with_fields_that_came_later(lake: Lake) -> None:
    log = lake(mode="changelog")
    place = {"topic": "cdc", "partition": 0, "index": 0}
    log.put({**row(1, "a", op="update", offset=1, **place), "before": {"id": 1}})
    log.spark.sql(f"CREATE TABLE {log.ref.sql} USING delta AS SELECT * FROM parquet.`{log.log_folder}`")
    log.spark.sql(f"ALTER TABLE {log.ref.sql} ADD COLUMNS (_before.more STRING, more STRING)")
    log.spark.sql(f"INSERT INTO {log.ref.sql} SELECT * FROM {log.ref.sql} WHERE false")
    wider = shape(id=pa.int64(), name=pa.string(), price=pa.int32(), more=pa.string())
    log.log.remove(1)
    log.put({**row(2, "b", op="update", offset=2, **place), "before": {"id": 2, "more": "m"}}, of=wider)
    log.log.remove(1)
    check(log)


def test_a_changelog_whose_columns_are_mapped(lake: Lake) -> None:
    log = lake(mode="changelog")
    place = {"topic": "cdc", "partition": 0, "index": 0}
    of = shape(**{"id": pa.int64(), "a name's": pa.string()})
    log.put({"id": 1, "a name's": "x", "op": "insert", "offset": 1, **place}, of=of)
    log.put({"id": 1, "a name's": "y", "op": "update", "offset": 2, "before": {"id": 1}, **place}, of=of)
    log.spark.sql(
        f"CREATE TABLE {log.ref.sql} USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name') "
        f"AS SELECT * FROM parquet.`{log.log_folder}`"
    )
    log.put({"id": 1, "op": "delete", "offset": 3, **place}, of=of)
    log.log.remove(2)
    check(log)


def test_texts_that_spark_pads_are_for_spark(lake: Lake) -> None:
    orders = lake()
    orders.spark.sql(f"CREATE TABLE {orders.ref.sql} (id INT, c VARCHAR(3)) USING delta")
    orders.spark.sql(f"INSERT INTO {orders.ref.sql} VALUES (1, 'x')")
    check(orders)
    for name, kind in {"d": "CHAR(3)", "e": "STRUCT<f: CHAR(3)>"}.items():
        padded = lake(f"shop/{name}")
        padded.spark.sql(f"CREATE TABLE {padded.ref.sql} (id INT, {name} {kind}) USING delta")
        with pytest.raises(OnlySpark, match=f"column {name} of CHAR, .* only Spark reads"):
            read_at(padded.path)
