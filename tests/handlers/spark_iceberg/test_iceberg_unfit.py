"""Tables and columns that PyIceberg, or binlane's queries, would get wrong are refused at the first row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from iceberg_lab import IcebergLake, change
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from handlers import Rejected

MakeLake = Callable[..., IcebergLake]
_STRUCT = StructType(NestedField(31, "q", BinaryType(), required=False))


def _made(lake: IcebergLake, *columns: tuple[str, IcebergType], **options: Any) -> None:
    """As another program makes the table."""
    lake.catalog.create_namespace("shop")
    fields = (NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(columns, 1))
    lake.catalog.create_table("shop.orders", Schema(*fields), **options)


@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
@pytest.mark.parametrize("name", ["_binlane_place", "_binlane_segment", "_BINLANE_until"])
def test_columns_like_those_of_queries_are_refused(make_lake: MakeLake, mode: str, name: str) -> None:
    with pytest.raises(Rejected, match=f"'{name}' is also .* one that merges add"):
        make_lake(mode=mode).take(change(1, {"id": 1, name: 0}, {"id": "int", name: "int"}))


def test_columns_that_differ_only_in_case_are_refused(lake: IcebergLake) -> None:
    with pytest.raises(Rejected, match="'straße' is also another column, in files or if case is ignored"):
        lake.take(
            change(1, {"id": 1, "straße": 1, "strasse": 2}, dict.fromkeys(("id", "straße", "strasse"), "int"))
        )
    _made(lake, ("id", IntegerType()), ("name", StringType()), ("NAME", StringType()))
    with pytest.raises(Rejected, match="'name' is also another column, in files or if case is ignored"):
        lake.take(change(1, {"id": 1, "name": "a"}))


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_x2Eb"), ("a b", "a_x20b"), ("1a", "_1A"), ("", "c")])
def test_columns_that_are_one_in_files_are_refused(make_lake: MakeLake, name: str, other: str) -> None:
    lake = make_lake()
    with pytest.raises(Rejected, match=r"'.*' is also another column, in files or if case is ignored"):
        lake.take(change(1, {"id": 1, name: 1, other: 2}, dict.fromkeys(("id", name, other), "int")))
    if name:
        types = {"id": "int", name: "int", "n": "int"}
        lake.take(change(2, {"id": 1, name: 1, "n": 2}, types))
        for clause in (f"ADD COLUMN `{other}` int", f"RENAME COLUMN n TO `{other}`"):
            with pytest.raises(Rejected, match="is also another column, in files"):
                lake.take(change(3, None, None, op="ddl", sql=f"ALTER TABLE orders {clause}"))
        lake.take(change(5, {"id": 1, name: 2, "n": 3}, types))
        lake.merge()
        assert lake.rows() == [{"id": 1, name: 2, "n": 3}]


@pytest.mark.parametrize("width", [100, 70_000])
def test_the_least_decimals_of_a_truncated_partition_are_told(make_lake: MakeLake, width: int) -> None:
    lake = make_lake(partition_by=[f"truncate({width}, c)"])
    for offset, value in enumerate(("1.50", "-99.99")):
        lake.take(change(offset, {"id": offset, "c": Decimal(value)}, {"id": "int", "c": "decimal(4,2)"}))
        if offset:
            with pytest.raises(Exception, match=r"by partitions .*truncate\[\d+\]"):
                lake.merge()
        else:
            lake.merge()
    with lake.table().update_spec() as spec:
        spec.remove_field("c_truncate")
    lake.merge()
    assert [row["c"] for row in lake.rows()] == [Decimal("1.50"), Decimal("-99.99")]


@pytest.mark.parametrize(
    "kind",
    [
        ListType(30, _STRUCT, element_required=False),
        MapType(40, StringType(), 41, _STRUCT, value_required=False),
        StructType(NestedField(50, "l", ListType(30, _STRUCT, element_required=False), required=False)),
        StructType(NestedField(60, "n", IntegerType(), required=True)),
    ],
)
def test_columns_whose_nulls_pyiceberg_loses_are_refused(lake: IcebergLake, kind: IcebergType) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    lake.take(change(2, {"id": 1, "name": "b"}))
    with lake.table().update_schema() as update:
        update.add_column("own", kind)
    for _ in range(2):
        with pytest.raises(Exception, match="PyIceberg does not keep its nulls"):
            lake.merge()
    assert lake.rows() == [{"id": 1, "name": "a", "own": None}]
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("own")
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "b"}]


@pytest.mark.parametrize(
    ("partition", "kind"),
    [
        ("c", "double"),
        ("c", "float"),
        ("hours(c)", "varchar(9)"),
        ("hours(c)", "date"),
        ("truncate(3, c)", "double"),
    ],
)
def test_partitions_that_a_type_does_not_have_are_refused(
    make_lake: MakeLake, partition: str, kind: str
) -> None:
    """By -0.0, PyIceberg would write rows twice, and by NaN none."""
    lake = make_lake(partition_by=[partition])
    with pytest.raises(Rejected, match=r"c is \w+, which cannot be partitioned by"):
        lake.take(change(1, {"id": 1, "c": None}, {"id": "int", "c": kind}))


def test_partitions_by_floats_of_somebody_else_are_refused(lake: IcebergLake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "c"))
    _made(lake, ("id", IntegerType()), ("c", DoubleType()), partition_spec=spec)
    with pytest.raises(Rejected, match="c is double, which cannot be partitioned by identity"):
        lake.take(change(1, {"id": 1, "c": -0.0}, {"id": "int", "c": "double"}))


def test_a_column_with_the_name_of_a_partition(make_lake: MakeLake) -> None:
    lake = make_lake(partition_by=["bucket(4, id)"])
    types = {"id": "int", "id_bucket": "varchar(9)"}
    for offset, text in enumerate("xy"):
        lake.take(change(offset, {"id": 1, "id_bucket": text}, types))
        lake.merge()
    assert lake.rows() == [{"id": 1, "id_bucket": "y"}]
    assert [each.name for each in lake.table().spec().fields] == ["id_bucket_partition"]


@pytest.mark.parametrize(
    ("source", "kind", "values", "kept"),
    [
        ("decimal(6,2)", DecimalType(10, 4), ("1.50", "-2.25"), Decimal("1.5")),
        ("date", TimestampType(), ("2020-01-01", "1960-01-01"), None),
    ],
)
def test_keys_are_found_in_a_wider_type_of_somebody_else(
    lake: IcebergLake, source: str, kind: IcebergType, values: tuple[str, str], kept: Any
) -> None:
    _made(lake, ("id", kind), ("name", StringType()))
    keys = [date.fromisoformat(each) if source == "date" else each for each in values]
    types = {"id": source, "name": "varchar(9)"}
    for offset, name in enumerate("ab"):
        lake.take(*(change(2 * offset + n, {"id": key, "name": name}, types) for n, key in enumerate(keys)))
        lake.merge()
    assert [row["name"] for row in lake.rows()] == ["b", "b"]
    assert kept is None or kept in [row["id"] for row in lake.rows()]


def test_a_partition_whose_column_is_gone_is_refused(make_lake: MakeLake) -> None:
    """Version 1 of the format keeps a removed partition as `void`."""
    lake = make_lake(properties={"format-version": 1}, partition_by=["name"])
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    with lake.table().update_spec() as spec:
        spec.remove_field("name")
    with lake.table().update_schema() as schema:
        schema.delete_column("name")
    lake.crash()
    with pytest.raises(Rejected, match="somebody has dropped the column of its partition name"):
        lake.take(change(2, {"id": 2}, {"id": "int"}))


@pytest.mark.parametrize("version", [1, 2])
def test_a_second_partition_of_a_column_is_refused(make_lake: MakeLake, version: int) -> None:
    """In version 1, the former one is kept as `void` and counts."""
    lake = make_lake(properties={"format-version": version}, partition_by=["bucket(4, id)"])
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    with lake.table().update_spec() as spec:
        if version == 1:
            spec.remove_field("id_bucket")
        spec.add_field("id", TruncateTransform(3), "by_id")
    lake.take(change(2, {"id": 1, "name": "b"}))
    for _ in range(2):
        with pytest.raises(Exception, match="two partitions of one column"):
            lake.merge()
    assert lake.rows() == [{"id": 1, "name": "a"}]


def test_a_table_with_other_files_than_parquet_is_refused(lake: IcebergLake) -> None:
    _made(lake, ("id", IntegerType()), properties={"write.format.default": "orc"})
    with pytest.raises(
        Rejected, match=r"PyIceberg writes only parquet, and the table's write\.format\.default is orc"
    ):
        lake.take(change(1, {"id": 1, "name": "a"}))


def test_a_column_that_pyiceberg_would_add_itself_is_refused(make_lake: MakeLake) -> None:
    lake = make_lake(partition_by=["bucket(4, id)"])
    name = "_partition_id_bucket"
    with pytest.raises(Rejected, match=f"'{name}' is also .* one that merges add"):
        lake.take(change(1, {"id": 1, name: 0}, {"id": "int", name: "int"}))
    lake.take(change(2, {"id": 1, "_partition_id": 0}, {"id": "int", "_partition_id": "int"}))
    lake.merge()
    assert lake.rows() == [{"id": 1, "_partition_id": 0}]
