"""Replicas in Iceberg: the source's rows, whatever else the table has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from iceberg_lab import IcebergLake, change
from msgspec.structs import replace
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, NestedField, StringType, StructType, UUIDType

from handlers import Rejected

MakeLake = Callable[..., IcebergLake]
_COLUMNS = Schema(NestedField(1, "ID", IntegerType()), NestedField(2, "name", StringType()))


def _update(offset: int, number: int, name: str) -> Any:
    return change(offset, {"id": number, "name": name}, op="update", before={"id": number, "name": "?"})


def test_rows_are_inserted_updated_and_deleted_by_key(lake: IcebergLake) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": "b"}))
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    lake.take(
        _update(3, 1, "c"),
        change(4, None, op="delete", before={"id": 2, "name": "b"}),
        change(5, {"id": 3, "name": "d"}),
    )
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "c"}, {"id": 3, "name": "d"}]
    assert lake.types() == {"id": "int", "name": "string"}
    assert [each.summary.operation.value for each in lake.table().snapshots()] == ["append", "overwrite"]


def test_only_files_with_a_changed_key_are_written_anew(lake: IcebergLake) -> None:
    for first in (0, 100, 200):
        lake.take(*(change(first + n, {"id": first + n, "name": "a"}) for n in range(100)))
        lake.merge()
    before = {each["file_path"] for each in lake.table().inspect.files().to_pylist()}
    lake.take(_update(500, 150, "b"))
    lake.merge()
    after = {each["file_path"] for each in lake.table().inspect.files().to_pylist()}
    assert (len(before), len(before & after)) == (3, 2)
    assert len(lake.rows()) == 300


def test_columns_of_others_keep_their_values(lake: IcebergLake) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": "b"}))
    lake.merge()
    table = lake.table()
    with table.update_schema() as update:
        update.add_column("note", StringType())
    table.overwrite(pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"], "note": ["x", "y"]}))
    lake.take(_update(3, 1, "c"), change(4, {"id": 3, "name": "d"}))
    lake.merge()
    assert lake.rows() == [
        {"id": 1, "name": "c", "note": "x"},
        {"id": 2, "name": "b", "note": "y"},
        {"id": 3, "name": "d", "note": None},
    ]


def test_what_an_update_does_not_tell_stays(lake: IcebergLake) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    types = {"id": "int", "name": "varchar(20)", "more": "int"}
    lake.take(change(2, {"id": 2, "name": "b", "more": 5}, types))
    lake.take(replace(change(3, {"id": 1, "more": 7}, types, op="update"), lacks=None))
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "a", "more": 7}, {"id": 2, "name": "b", "more": 5}]


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_that_somebody_else_made_keeps_its_partitions_order_and_version(
    lake: IcebergLake, version: str
) -> None:
    lake.catalog.create_namespace("shop")
    lake.catalog.create_table(
        "shop.orders",
        _COLUMNS,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")),
        sort_order=SortOrder(SortField(1, IdentityTransform())),
        properties={"format-version": version},
    )
    lake.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": "b"}))
    lake.merge()
    lake.take(_update(3, 1, "b"))
    lake.merge()
    assert lake.rows() == [{"ID": 1, "name": "b"}, {"ID": 2, "name": "b"}]
    table = lake.table()
    assert (table.format_version, len(table.spec().fields), len(table.sort_order().fields)) == (
        int(version),
        1,
        1,
    )


def test_a_required_column_that_the_source_does_not_have_is_refused(lake: IcebergLake) -> None:
    lake.catalog.create_namespace("shop")
    more = NestedField(3, "must", StringType(), required=True)
    lake.catalog.create_table("shop.orders", Schema(*_COLUMNS.fields, more))
    with pytest.raises(Rejected, match="'must' must not be null"):
        lake.take(change(1, {"id": 1, "name": "a"}))


def test_partitions_by_transforms(make_lake: MakeLake) -> None:
    lake = make_lake(partition_by=["days(At)", "bucket(4, id)", "truncate(1, name)", "gone"])
    types = {"id": "int", "name": "varchar(20)", "at": "timestamp"}
    moments = [datetime(2026, 11, day, 12, tzinfo=UTC) for day in (1, 2)]
    rows = [{"id": n, "name": f"{n}n", "at": moments[n % 2]} for n in range(4)]
    lake.take(*(change(n, row, types) for n, row in enumerate(rows)))
    lake.merge()
    moved = {**rows[0], "at": moments[1]}
    lake.take(change(9, moved, types, op="update", before=rows[0]))
    lake.merge()
    assert lake.rows() == sorted([moved, *rows[1:]], key=repr)
    assert [str(each.transform) for each in lake.table().spec().fields] == ["day", "bucket[4]", "truncate[1]"]


def test_names_with_dots_and_capitals(lake: IcebergLake) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}), table="My.Shop.Or")
    lake.merge()
    assert lake.catalog.list_namespaces() == [("My",)]
    assert lake.catalog.load_table(("My", "Shop.Or")).scan().to_arrow().to_pylist() == [
        {"id": 1, "name": "a"}
    ]


def test_rows_without_a_key_are_refused(lake: IcebergLake) -> None:
    with pytest.raises(Rejected, match="which mode replica needs: give it one, or keep its changelog"):
        lake.take(change(1, {"id": 1, "name": None}, key=()))


def test_a_negative_zero_stays_when_an_update_does_not_tell_it(lake: IcebergLake) -> None:
    types = {"id": "int", "name": "varchar(20)", "f": "double"}
    lake.take(change(1, {"id": 1, "name": "a", "f": -0.0}, types))
    lake.merge()
    lake.take(replace(change(2, {"id": 1, "name": "b"}, types, op="update"), lacks=None))
    lake.merge()
    assert repr(lake.rows()) == "[{'id': 1, 'name': 'b', 'f': -0.0}]"


def test_a_set_in_the_key_is_refused(lake: IcebergLake) -> None:
    with pytest.raises(Rejected, match="id of the key is list"):
        lake.take(change(1, {"id": ("a",)}, {"id": "set('a','b')"}))


@pytest.mark.parametrize(("kind", "least"), [("int", -(2**31)), ("bigint", -(2**63))])
def test_the_least_integers_are_found_in_partitions(make_lake: MakeLake, kind: str, least: int) -> None:
    lake = make_lake(partition_by=["truncate(3, id)"])
    for offset, number in enumerate((least, least + 1, 5, least, least + 1, 5)):
        lake.take(change(offset, {"id": number}, {"id": kind}))
        lake.merge()
    assert sorted(row["id"] for row in lake.rows()) == [least, least + 1, 5]


@pytest.mark.parametrize("how", ["default", "column.name"])
def test_texts_without_a_next_character_are_kept(make_lake: MakeLake, how: str) -> None:
    """PyIceberg cuts the greatest text after 16 characters, and then counts the last one up."""
    lake = make_lake(properties={f"write.metadata.metrics.{how}": "truncate(16)"})
    text = 15 * "x" + "\ud7ff more"
    for offset, name in enumerate(("a", text, text + "!")):
        lake.take(change(offset, {"id": 1, "name": name}))
        lake.merge()
    assert lake.rows() == [{"id": 1, "name": text + "!"}]


@pytest.mark.parametrize("partition", ["years(id)", "months(id)"])
@pytest.mark.parametrize("kind", ["date", "datetime"])
def test_many_keys_at_the_ends_of_the_calendar_are_found(
    make_lake: MakeLake, partition: str, kind: str
) -> None:
    lake = make_lake(partition_by=[partition])
    first = date(2026, 1, 1) if kind == "date" else datetime(2026, 1, 1)
    keys = [*(first + timedelta(n) for n in range(200)), type(first).min, type(first).max]
    types = {"id": kind, "n": "int"}
    for number in range(2):
        lake.take(*(change(1000 * number + n, {"id": key, "n": number}, types) for n, key in enumerate(keys)))
        lake.merge()
    assert [row["n"] for row in lake.rows()] == [1] * 202


@pytest.mark.parametrize("is_nested", [False, True])
def test_uuids_of_others_stay(lake: IcebergLake, is_nested: bool) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    kind = StructType(NestedField(10, "u", UUIDType(), required=False)) if is_nested else UUIDType()
    with lake.table().update_schema() as update:
        update.add_column("own", kind)
    own: pa.Array = pa.array([UUID(int=5)], pa.uuid())
    own = pa.StructArray.from_arrays([own], ["u"]) if is_nested else own
    lake.table().overwrite(lake.table().scan().to_arrow().drop_columns("own").append_column("own", own))
    lake.take(change(2, {"id": 1, "name": "b"}), change(3, {"id": 2, "name": "c"}))
    lake.merge()
    value = {"u": UUID(int=5)} if is_nested else UUID(int=5)
    assert lake.rows() == [{"id": 1, "name": "b", "own": value}, {"id": 2, "name": "c", "own": None}]


def test_a_float_in_the_key_is_refused(lake: IcebergLake) -> None:
    with pytest.raises(Rejected, match="id of the key is double"):
        lake.take(change(1, {"id": 1.5, "name": "a"}, {"id": "double", "name": "varchar(20)"}))
