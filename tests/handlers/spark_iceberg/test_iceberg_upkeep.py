"""Few files, few snapshots, and no file that no snapshot needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_lab import IcebergLake, change
from pyiceberg.exceptions import CommitFailedException

from handlers.spark.delta.commits.commit_notes import LostCommit
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.iceberg.commits import expire
from handlers.spark.table_ref import TableRef

MakeLake = Callable[..., IcebergLake]
_REF = TableRef("`shop`.`orders`", None, "unused", "binlane:shop.orders")


def _sink(lake: IcebergLake) -> TableSink:
    with lake.handler._open.table("shop", "orders") as sink:  # type: ignore[union-attr]
        return sink


def _data(lake: IcebergLake) -> set[Path]:
    return set((lake.folder / "lake/iceberg/shop/orders/data").rglob("*.parquet"))


def test_small_files_become_one_and_the_rows_stay(lake: IcebergLake) -> None:
    for number in range(4):
        lake.take(change(number, {"id": number, "name": "a"}))
        lake.merge()
    rows = lake.rows()
    _sink(lake).merges.optimize(5)
    assert len(lake.table().inspect.files()) == 4
    _sink(lake).merges.optimize(4)
    assert len(lake.table().inspect.files()) == 1
    assert lake.rows() == rows
    lake.crash()
    lake.take(change(3, {"id": 3, "name": "a"}), change(4, {"id": 4, "name": "a"}))
    lake.merge()
    assert [row["id"] for row in lake.rows()] == [0, 1, 2, 3, 4]


def test_the_only_file_of_a_partition_is_not_written_again(make_lake: MakeLake) -> None:
    lake = make_lake(partition_by=["id"])
    lake.take(*(change(number, {"id": number, "name": "a"}) for number in range(4)))
    lake.merge()
    _sink(lake).merges.optimize(2)
    assert len(lake.table().snapshots()) == 1
    lake.take(change(4, {"id": 3, "name": "b"}, key=("name",)))
    lake.merge()
    lake.take(change(5, {"id": 3, "name": "c"}, key=("name",)))
    lake.merge()
    alone = {
        each["file_path"]
        for each in lake.table().inspect.files().to_pylist()
        if "id=3" not in each["file_path"]
    }
    _sink(lake).merges.optimize(2)
    files = {each["file_path"] for each in lake.table().inspect.files().to_pylist()}
    assert (len(alone), len(files)) == (3, 4)
    assert alone < files


def test_old_snapshots_go_with_their_files_but_not_those_of_tags(lake: IcebergLake) -> None:
    for number in range(4):
        lake.take(change(number, {"id": 1, "name": str(number)}))
        lake.merge()
        if number == 1:
            table = lake.table()
            table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "kept").commit()
    assert len(_data(lake)) == 4
    time.sleep(0.05)
    _sink(lake).merges.vacuum(0.01)
    table = lake.table()
    assert len(table.snapshots()) == 2
    assert len(_data(lake)) == 2
    assert lake.rows() == [{"id": 1, "name": "3"}]
    assert table.scan().use_ref("kept").to_arrow().to_pylist() == [{"id": 1, "name": "1"}]
    lake.crash()
    lake.take(change(3, {"id": 1, "name": "3"}), change(4, {"id": 1, "name": "4"}))
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "4"}]


def test_a_tag_that_is_made_while_files_are_counted_keeps_its_snapshot(lake: IcebergLake) -> None:
    for number in range(3):
        lake.take(change(number, {"id": 1, "name": str(number)}))
        lake.merge()
    counted = lake.table()
    lake.table().manage_snapshots().create_tag(counted.snapshots()[0].snapshot_id, "kept").commit()
    time.sleep(0.05)
    expire(counted, 0.01, lake.table, _REF)
    table = lake.table()
    assert len(table.snapshots()) == 2
    assert table.scan().use_ref("kept").to_arrow().to_pylist() == [{"id": 1, "name": "0"}]
    assert lake.rows() == [{"id": 1, "name": "2"}]


def test_a_table_that_is_set_back_while_files_are_counted_stays_so(lake: IcebergLake) -> None:
    for number in range(3):
        lake.take(change(number, {"id": 1, "name": str(number)}))
        lake.merge()
    counted = lake.table()
    lake.table().manage_snapshots().rollback_to_snapshot(counted.snapshots()[0].snapshot_id).commit()
    time.sleep(0.05)
    with pytest.raises(LostCommit, match="was set back to a snapshot before"):
        expire(counted, 0.01, lake.table, _REF)
    assert lake.rows() == [{"id": 1, "name": "0"}]


def test_a_table_that_is_set_back_while_snapshots_expire_stays_so(lake: IcebergLake) -> None:
    for number in range(3):
        lake.take(change(number, {"id": 1, "name": str(number)}))
        lake.merge()

    def load() -> Any:
        loaded = lake.table()
        lake.table().manage_snapshots().rollback_to_snapshot(loaded.snapshots()[0].snapshot_id).commit()
        return loaded

    time.sleep(0.05)
    with pytest.raises(CommitFailedException, match="branch main has changed"):
        expire(lake.table(), 0.01, load, _REF)
    assert lake.rows() == [{"id": 1, "name": "0"}]


def test_snapshots_stay_that_show_that_a_table_was_set_back(lake: IcebergLake) -> None:
    """Or the next merge would go on, without the rows between."""
    for number in range(1, 4):
        lake.take(change(number, {"id": number, "name": "a"}))
        lake.merge()
    table = lake.table()
    table.manage_snapshots().set_current_snapshot(snapshot_id=table.snapshots()[1].snapshot_id).commit()
    _sink(lake).merges.optimize(2)  # it commits
    time.sleep(0.05)
    with pytest.raises(LostCommit, match="was set back to a snapshot before"):
        _sink(lake).merges.vacuum(0.01)
    assert len(lake.table().snapshots()) == 4
    lake.take(change(4, {"id": 4, "name": "a"}))
    with pytest.raises(Exception, match="was set back to a snapshot before"):
        lake.merge()
    assert [row["id"] for row in lake.rows()] == [1, 2]


@pytest.mark.parametrize("version", [1, 2])
def test_merges_go_on_after_snapshots_behind_a_tag_are_removed(make_lake: MakeLake, version: int) -> None:
    """The tag keeps the last merge, which the newest snapshot no longer leads to."""
    lake = make_lake(properties={"format-version": version})
    for number in range(2):
        lake.take(change(number, {"id": number, "name": "a"}))
        lake.merge()
    table = lake.table()
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "kept").commit()
    _sink(lake).merges.optimize(2)
    lake.table().append(
        pa.table([[9], ["own"]], schema=pa.schema([("id", pa.int32()), ("name", pa.string())]))
    )
    time.sleep(0.05)
    for _ in range(2):
        _sink(lake).merges.vacuum(0.01)
    assert len(lake.table().snapshots()) == 2
    lake.crash()
    lake.take(*(change(number, {"id": number, "name": "a"}) for number in range(3)))
    lake.merge()
    assert [row["id"] for row in lake.rows()] == [0, 1, 2, 9]
    table = lake.table()
    table.manage_snapshots().set_current_snapshot(ref_name="kept").commit()
    lake.take(change(3, {"id": 3, "name": "a"}))
    with pytest.raises(Exception, match="was set back to a snapshot before"):
        lake.merge()


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_table_that_is_renamed_while_files_are_counted_keeps_them(
    lake: IcebergLake, is_made_anew: bool
) -> None:
    """As when somebody puts another table in its place."""
    for number in range(3):
        lake.take(change(number, {"id": 1, "name": str(number)}))
        lake.merge()
    counted = lake.table()
    catalog = lake.catalog
    catalog.rename_table("shop.orders", "shop.former")
    if is_made_anew:
        columns = pa.schema([("id", pa.int32()), ("name", pa.string())])
        new = catalog.create_table("shop.orders", columns, location=str(lake.folder / "other"))
        for number in range(2):
            new.append(pa.table([[number], ["new"]], schema=columns))
    time.sleep(0.05)
    expire(counted, 0.01, lambda: lake.table() if is_made_anew else None, _REF)
    assert lake.rows("shop.former") == [{"id": 1, "name": "2"}]
    assert len(lake.table("shop.former").snapshots()) == 3


def test_a_former_state_that_is_registered_while_files_are_counted_takes_no_files_of_the_later_one(
    lake: IcebergLake,
) -> None:
    """Both have the same id."""
    for number in range(3):
        lake.take(change(number, {"id": 1, "name": str(number)}))
        lake.merge()
    counted, former = lake.table(), lake.table().metadata.metadata_log[-1].metadata_file
    lake.catalog.rename_table("shop.orders", "shop.later")
    lake.catalog.register_table("shop.orders", former)
    time.sleep(0.05)
    expire(counted, 0.01, lake.table, _REF)
    assert lake.rows("shop.later") == [{"id": 1, "name": "2"}]


def test_snapshots_stay_if_that_is_set_while_files_are_counted(lake: IcebergLake) -> None:
    for number in range(3):
        lake.take(change(number, {"id": 1, "name": str(number)}))
        lake.merge()
    counted = lake.table()
    with lake.table().transaction() as other:
        other.set_properties({"gc.enabled": "false"})
    time.sleep(0.05)
    expire(counted, 0.01, lake.table, _REF)
    assert (len(lake.table().snapshots()), len(_data(lake))) == (3, 3)


def test_files_stay_that_another_table_may_need(make_lake: MakeLake) -> None:
    """Spark's `snapshot` makes a table of another one's files, and sets gc.enabled to false."""
    lake = make_lake(properties={"gc.enabled": False})
    for number in range(3):
        lake.take(change(number, {"id": 1, "name": str(number)}))
        lake.merge()
    time.sleep(0.05)
    _sink(lake).merges.vacuum(0.01)
    assert (len(lake.table().snapshots()), len(_data(lake))) == (3, 3)
