"""Tables follow the source's columns where no DDL tells."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, shape

from handlers import Rejected
from handlers.spark.delta.evolving import evolve, schema
from handlers.spark.options import MergeOptions

NARROW = shape(
    id=pa.int32(), n=pa.int16(), u=pa.int64(), price=pa.decimal128(6, 1), ratio=pa.float32(), day=pa.date32()
)


def evolved(table: Table, **types: pa.DataType) -> dict[str, str]:
    evolve(table.spark, table.ref, pa.schema(list(types.items())))
    return table.types()


# The same by a handler: spark_engine/test_spark_replica.py.
@pytest.mark.soak
def test_columns_are_added_and_widened(make_table: MakeTable) -> None:
    table = make_table()
    assert schema(table.spark, table.ref) is None
    evolve(table.spark, table.ref, NARROW.schema)
    assert schema(table.spark, table.ref) is None
    table.put(NARROW, {"id": 1, "n": 7, "price": Decimal("1.5")})
    table.merge()
    wide = {
        "id": pa.int64(),
        "N": pa.int32(),
        "u": pa.decimal128(20, 0),
        "price": pa.decimal128(12, 3),
        "ratio": pa.float64(),
        "day": pa.timestamp("us"),
        "new col": pa.string(),
    }
    expected = {
        "id": "bigint",
        "n": "int",
        "u": "decimal(20,0)",
        "price": "decimal(12,3)",
        "ratio": "double",
        "day": "timestamp_ntz",
        "new col": "string",
    }
    assert evolved(table, **wide) == expected
    commits = table.commits
    assert evolved(table, **wide) == evolved(table, id=pa.int32(), price=pa.decimal128(9, 2)) == expected
    assert table.commits == commits
    table.put(
        shape(**wide), {"id": 2, "price": Decimal("1.125"), "new col": "x", "day": datetime(2026, 1, 1, 2)}
    )
    table.merge()
    assert table.rows("id, n, price, `new col`, day") == [
        (1, 7, Decimal("1.500"), None, None),
        (2, None, Decimal("1.125"), "x", datetime(2026, 1, 1, 2)),
    ]


@pytest.mark.soak
def test_a_changelogs_old_rows_follow_too(make_table: MakeTable) -> None:
    table = make_table(mode="changelog")
    place = {"topic": "cdc", "partition": 0, "index": 0}
    table.put(shape(id=pa.int32(), a=pa.int16()), {"op": "insert", "id": 1, "a": 1, "offset": 1, **place})
    table.merge()
    after = {"id": pa.int32(), "a": pa.int32(), "b": pa.string()}
    evolve(table.spark, table.ref, pa.schema([("_before", pa.struct(list(after.items()))), *after.items()]))
    before = {"id": 1, "a": 1, "b": None}
    row = {"op": "update", "before": before, "id": 1, "a": 70_000, "b": "x", "offset": 2, **place}
    table.put(shape(**after), row)
    table.merge()
    assert table.types()["_before"] == "struct<id:int,a:int,b:string>"
    assert table.rows("_offset, _op, _before, a, b") == [
        (1, "insert", None, 1, None),
        (2, "update", before, 70_000, "x"),
    ]


def test_types_that_no_column_can_become_are_told(make_table: MakeTable) -> None:
    table = make_table()
    table.put(NARROW, {"id": 1})
    table.merge()
    with pytest.raises(Rejected, match=f"'n' is smallint in {table.path}, .* kept as string") as told:
        evolved(table, id=pa.int32(), n=pa.string(), extra=pa.int32())
    assert "`columns`" in str(told.value)
    assert "extra" not in table.types()
    with pytest.raises(Rejected, match="'u' is bigint"):
        evolved(table, u=pa.float64())
    with pytest.raises(Rejected, match="'n' is smallint"):  # though it would hold the values
        evolved(table, n=pa.decimal128(6, 0))


def test_a_table_of_somebody_else_that_needs_other_columns_is_told(make_table: MakeTable) -> None:
    table = make_table()
    table.sql("CREATE TABLE {t} (id int NOT NULL, owner string NOT NULL) USING delta")
    with pytest.raises(Rejected, match=r"'owner' of .* must not be null"):
        evolved(table, id=pa.int32(), name=pa.string())
    assert evolved(table, id=pa.int32(), OWNER=pa.string(), name=pa.string())["name"] == "string"


def test_a_new_table_has_the_properties_that_were_asked_for(make_table: MakeTable) -> None:
    properties = {"delta.enableChangeDataFeed": True, "mine": "it's"}
    table = make_table(properties=properties, partition_by=["Country", "not_there"])
    table.put(shape(id=pa.int32(), country=pa.string()), {"id": 1, "country": "fr"})
    table.merge()
    [detail] = table.sql("DESCRIBE DETAIL {t}").collect()
    assert detail.partitionColumns == ["country"]
    assert detail.properties["delta.enableChangeDataFeed"] == "true"
    assert detail.properties["mine"] == "it's"
    assert detail.properties["binlane.made"] == "true"
    assert "delta.columnMapping.mode" not in detail.properties
    assert table.commits == 0  # a worker that died before a second one would leave them out for good


def test_a_new_table_is_clustered_as_asked_for(make_table: MakeTable) -> None:
    orders = shape(id=pa.int64(), Name=pa.string(), price=pa.int32())
    auto = MergeOptions(engine="auto")
    table = make_table(cluster_by=["NAME", "not_there"], merge=auto)
    for price in (1, 2):
        table.put(orders, {"id": 1, "Name": "a", "price": price}, {"id": price + 1, "Name": "b"})
        table.merge()
    assert table.makers == "ss"
    assert table.sql("DESCRIBE DETAIL {t}").collect()[0].clusteringColumns == ["Name"]
    rows = sorted(map(tuple, table.sql("SELECT * FROM {t}").collect()))
    assert rows == [(1, "a", 2), (2, "b", None), (3, "b", None)]


def test_a_wide_table_is_clustered_by_what_delta_can_use(make_table: MakeTable) -> None:
    """Delta has statistics of 32 columns by default, and of no binary or boolean column."""
    kinds = {"flag": pa.bool_(), "raw": pa.binary(), **{f"c{number}": pa.int32() for number in range(40)}}
    wide = shape(id=pa.int64(), **kinds, last=pa.string())
    table = make_table(cluster_by=["flag", "last", "raw", "LAST"], merge=MergeOptions(engine="auto"))
    for id in (1, 2):
        table.put(wide, {"id": id, "last": "a", "flag": True})
        table.merge()
    assert table.sql("DESCRIBE DETAIL {t}").collect()[0].clusteringColumns == ["last"]
    assert table.sql("SELECT count(*) FROM {t} WHERE last = 'a' AND flag").collect()[0][0] == 2


def test_what_an_attempt_left_that_did_not_commit_is_no_table(make_table: MakeTable) -> None:
    table = make_table()
    left = Path(table.path, "_delta_log", f".{0:020d}.json.tmp")
    left.parent.mkdir(parents=True)
    left.touch()
    Path(table.path, "part-0.parquet").touch()
    table.put(shape(id=pa.int32()), {"id": 1})
    table.merge()
    assert table.rows() == [(1,)]
    assert table.sql("SHOW TBLPROPERTIES {t} ('binlane.made')").collect()[0].value == "true"
