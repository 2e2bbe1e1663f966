"""Each change is in an Iceberg table once, whoever else commits to it, and whatever becomes of snapshots."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.table
import pytest
import sqlalchemy as sa
from iceberg_lab import IcebergLake, change
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import update_table_metadata
from pyiceberg.types import StringType

from handlers import TargetUnavailable
from handlers.spark.delta.commits.commit_notes import CommitNote, read_note
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.iceberg import commits
from handlers.spark.iceberg.catalog import IcebergCatalog
from handlers.spark.iceberg.commits import TableCommit, held_in
from handlers.spark.log.beside import Held
from handlers.spark.options import SparkSection
from handlers.spark.table_ref import TableRef

MakeLake = Callable[..., IcebergLake]
_REF = TableRef("`shop`.`orders`", None, "unused", "binlane:shop.orders")
_COLUMNS = pa.schema([("id", pa.int32()), ("name", pa.string())])


def _rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": "a"} for number in numbers]


def _take(lake: IcebergLake, *numbers: int) -> None:
    lake.take(*(change(number, {"id": number, "name": "a"}) for number in numbers))


def _append(lake: IcebergLake, *numbers: int) -> None:
    """As another program does."""
    lake.table().append(pa.Table.from_pylist(_rows(*numbers), _COLUMNS))


def test_a_snapshot_says_who_made_it_and_which_segments_it_has(lake: IcebergLake) -> None:
    _take(lake, 1)
    _take(lake, 2)
    lake.merge()
    note = read_note(lake.table().current_snapshot().summary["binlane"])
    assert note is not None
    told = {"worker": "test", "handler": "spark", "log": "binlane:shop.orders", "first": 1, "segment": 2}
    assert told.items() <= note.items()
    assert note["marks"] == {"cdc": {"0": [2, 0]}}


def test_after_a_crash_nothing_is_there_twice(lake: IcebergLake) -> None:
    _take(lake, 1)
    lake.merge()
    _take(lake, 2)
    lake.crash()
    _take(lake, 1, 2, 3)  # it comes again
    lake.merge()
    assert lake.rows() == _rows(1, 2, 3)


@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_of_two_writers_one_wins_and_the_other_notices(make_lake: MakeLake, mode: str) -> None:
    one, other = make_lake(mode=mode), make_lake(mode=mode)
    changes = [change(number, {"id": number, "name": "a"}) for number in (1, 2)]
    one.take(changes[0])
    _sink(other).load()  # as the next worker does, which gets the partition
    assert other.status()["waiting_rows"] == 1
    one.merge()
    other.take(changes[1])
    other.merge()
    assert [row["id"] for row in one.rows()] == [1, 2]
    one.merge()
    assert (other.status()["waiting_rows"], other.status()["error"]) == (0, None)


def _sink(lake: IcebergLake) -> Any:
    with lake.handler._open.table("shop", "orders") as sink:  # type: ignore[union-attr]
        return sink


@pytest.fixture
def catalog(lake: IcebergLake) -> IcebergCatalog:
    return IcebergCatalog(SparkSection(iceberg=lake.catalog_properties), lake.folder)


def _note(first: int, last: int) -> CommitNote:
    return CommitNote("w", "h", first, last, 0, {})


def _prepared(catalog: IcebergCatalog, *numbers: int, segment: int) -> TableCommit:
    table = catalog.load(("shop", "orders"))
    commit = TableCommit(_REF, table)
    commit.replace([], [pa.Table.from_pylist(_rows(*numbers), _COLUMNS)], _note(segment, segment))
    return commit


def test_a_commit_is_refused_if_another_was_made_since_it_was_prepared(
    lake: IcebergLake, catalog: IcebergCatalog
) -> None:
    """And not repeated on top of it, as PyIceberg would by itself: the other may have the same rows."""
    _take(lake, 1)
    lake.merge()
    first, second = (_prepared(catalog, 2, segment=2) for _ in range(2))
    first.commit()
    with pytest.raises(MergeConflict, match="branch main has changed"):
        second.commit()
    assert lake.rows() == _rows(1, 2)


def test_a_commit_is_refused_if_columns_were_changed_since_it_was_prepared(
    lake: IcebergLake, catalog: IcebergCatalog
) -> None:
    """Or its values would be in a column that is gone."""
    _take(lake, 1)
    lake.merge()
    prepared = _prepared(catalog, 2, segment=2)
    with lake.table().update_schema() as update:
        update.delete_column("name")
    with lake.table().update_schema() as update:
        update.add_column("name", StringType())
    with pytest.raises(MergeConflict, match="current schema id has changed"):
        prepared.commit()
    _take(lake, 2)
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": None}, {"id": 2, "name": "a"}]


def test_the_last_merge_is_found_without_a_look_at_all_snapshots(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg searches all of them for each parent: 5 s for 10,000."""
    for number in (1, 2, 3):
        _take(lake, number)
        lake.merge()
    _append(lake, 100)
    looked: list[Snapshot] = []

    def looked_at(*args: Any) -> Iterator[Snapshot]:
        for each in ancestors_of(*args):
            looked.append(each)
            yield each

    monkeypatch.setattr(commits, "ancestors_of", looked_at)
    assert held_in(_REF, lake.table()) == Held(3, 3)
    assert len(looked) == 2


def test_rows_of_others_stay(lake: IcebergLake) -> None:
    _take(lake, 1)
    lake.merge()
    _append(lake, 100)
    _take(lake, 2)
    lake.merge()
    assert lake.rows() == _rows(1, 100, 2)


@pytest.mark.parametrize("version", [1, 2])
def test_a_table_remembers_its_segments_when_their_snapshots_have_expired(
    make_lake: MakeLake, version: int
) -> None:
    lake = make_lake(properties={"format-version": version})
    _take(lake, 1)
    lake.merge()
    _append(lake, 100)
    table = lake.table()
    expired = table.snapshots()[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(expired).commit()
    assert held_in(_REF, lake.table()) == Held(1, 1)
    lake.crash()
    _take(lake, 1, 2)
    lake.merge()
    assert lake.rows() == _rows(1, 100, 2)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_written_since", [False, True])
def test_a_table_that_is_set_back_is_noticed(
    make_lake: MakeLake, is_written_since: bool, version: int
) -> None:
    lake = make_lake(properties={"format-version": version})
    for number in (1, 2):
        _take(lake, number)
        lake.merge()
    table = lake.table()
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    if is_written_since:
        _append(lake, 100)
    _take(lake, 3)
    with pytest.raises(Exception, match="was set back to a snapshot before"):
        lake.merge()
    assert [row["id"] for row in lake.rows()] == [1, 100][: 1 + is_written_since]


@pytest.mark.parametrize("expired", [0, 1])
@pytest.mark.parametrize("version", [1, 2])
def test_a_table_that_is_set_back_is_noticed_though_a_snapshot_has_expired(
    make_lake: MakeLake, version: int, expired: int
) -> None:
    lake = make_lake(properties={"format-version": version})
    for number in (1, 2):
        _take(lake, number)
        lake.merge()
    snapshots = [each.snapshot_id for each in lake.table().snapshots()]
    lake.table().manage_snapshots().set_current_snapshot(snapshot_id=snapshots[0]).commit()
    _append(lake, 100)
    lake.table().maintenance.expire_snapshots().by_id(snapshots[expired]).commit()
    _take(lake, 3)
    with pytest.raises(Exception, match="was set back to a snapshot before"):
        lake.merge()
    assert [row["id"] for row in lake.rows()] == [1, 100]


@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
@pytest.mark.parametrize("is_renamed", [False, True])
def test_values_whose_column_somebody_removes_are_not_lost(
    make_lake: MakeLake, mode: str, is_renamed: bool
) -> None:
    lake = make_lake(mode=mode)
    _take(lake, 1)
    lake.merge()
    _take(lake, 2)
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("name", "label") if is_renamed else update.delete_column("name")
    with pytest.raises(Exception, match="somebody has changed name of the table"):
        lake.merge()
    lake.merge()  # it gets the column again
    assert [(row["id"], row["name"]) for row in lake.rows()] == [(1, None), (2, "a")]


def test_a_table_that_is_made_anew_is_noticed(lake: IcebergLake) -> None:
    _take(lake, 1)
    lake.merge()
    lake.catalog.drop_table("shop.orders")
    _take(lake, 2)
    with pytest.raises(Exception, match="had segment 1 of its log, and now has none"):
        lake.merge()


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_segments_of_another_log_do_not_pass_for_merged(
    make_lake: MakeLake, is_made_anew: bool, ahead: int
) -> None:
    """As when a second group begins with a warehouse of its own, and the same catalog."""
    lake = make_lake()
    other = make_lake(warehouse="lake2", catalog={"warehouse": "lake/iceberg"})
    if is_made_anew:
        _take(lake, 1)
        lake.merge()
        lake.catalog.drop_table("shop.orders")
    _take(lake, 2)
    for number in range(1 + is_made_anew + ahead):
        _take(other, 101 + number)
        other.merge()
    before = lake.rows()
    for _ in range(2):
        with pytest.raises(Exception, match=r"has segment \d of another log than .*two warehouses"):
            lake.merge()
    lake.crash()
    with pytest.raises(TargetUnavailable, match=r"has segment \d of another log"):
        _take(lake, 3)
    _take(other, 200)
    other.merge()
    assert lake.rows() == [*before, *_rows(200)]


def test_a_log_that_is_restored_is_noticed(lake: IcebergLake) -> None:
    _take(lake, 1)
    lake.merge()
    log, copy = lake.folder / "lake/_binlane", lake.folder / "copy"
    shutil.copytree(log, copy)
    for number in (2, 3):
        _take(lake, number)
        lake.merge()
    lake.close()
    shutil.rmtree(log)
    shutil.copytree(copy, log)
    lake.open()
    with pytest.raises(TargetUnavailable, match="has segment 3 of another log"):
        _take(lake, 4)
    assert lake.rows() == _rows(1, 2, 3)


def test_a_table_goes_on_after_the_segment_of_its_last_merge_was_removed(lake: IcebergLake) -> None:
    _take(lake, 1)
    lake.merge()
    _take(lake, 2)
    _sink(lake).merges.remove(1)
    lake.crash()
    _take(lake, 3)
    lake.merge()
    assert lake.rows() == _rows(1, 2, 3)


class Forgetful(SqlCatalog):
    """Makes commits, and loses its answer to every second one."""

    _calls = 0

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        answer = super().commit_table(*args, **kwargs)
        Forgetful._calls += 1
        if Forgetful._calls % 2:
            raise ConnectionError("the answer is lost")
        return answer


@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_a_commit_whose_answer_is_lost_is_made_once(make_lake: MakeLake, tmp_path: Path, mode: str) -> None:
    own = f"{Forgetful.__module__}.{Forgetful.__qualname__}"
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path / "lake")}
    lake = make_lake(mode=mode, catalog={"type": "", "py-catalog-impl": own, **place})
    for number in range(1, 6):
        lake.take(change(number, {"id": number, "name": "a"}))
        with suppress(TargetUnavailable):
            lake.merge()
        lake.merge()
    lake.catalog_properties = {"type": "sql", "uri": "sqlite:///catalog.db"}
    assert [row["id"] for row in lake.rows()] == [1, 2, 3, 4, 5]
    assert Forgetful._calls
    assert lake.status()["error"] is None


class SentTwice(SqlCatalog):
    """Makes commits, and refuses every second one: a proxy has lost the answer, and sends it again."""

    _calls = 0

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        answer = super().commit_table(*args, **kwargs)
        SentTwice._calls += 1
        if SentTwice._calls % 2 == 0:
            raise CommitFailedException("409: branch main has changed")
        return answer


def test_files_of_a_refused_commit_stay_because_it_may_have_been_made(
    make_lake: MakeLake, tmp_path: Path
) -> None:
    own = f"{SentTwice.__module__}.{SentTwice.__qualname__}"
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path / "lake")}
    lake = make_lake(catalog={"type": "", "py-catalog-impl": own, **place})
    for number in range(1, 6):
        _take(lake, number)
        lake.merge()
    lake.catalog_properties = {"type": "sql", "uri": "sqlite:///catalog.db"}
    assert lake.rows() == _rows(1, 2, 3, 4, 5)
    assert SentTwice._calls


def test_manifests_stay_few_however_many_commits_there_are(lake: IcebergLake) -> None:
    for number in range(50):
        _take(lake, number if number % 2 else 1)  # files are added, and some are replaced
        lake.merge()
        table = lake.table()
        assert len(table.current_snapshot().manifests(table.io)) < 22
    assert lake.rows() == sorted(_rows(*range(1, 50, 2)), key=repr)
    assert int(table.current_snapshot().summary["total-records"]) == 25


def test_snapshots_are_copied_a_few_times_in_a_commit_of_however_many_files(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1,000 of them, each copy takes 30 ms or more."""
    for number in range(1, 6):
        _take(lake, number)
        lake.merge()
    copies = []

    def copied(*args: Any, **kwargs: Any) -> Any:
        copies.append(args[1])
        return update_table_metadata(*args, **kwargs)

    monkeypatch.setattr(pyiceberg.table, "update_table_metadata", copied)
    lake.take(*(change(10 + number, {"id": number, "name": "b"}) for number in range(1, 6)))
    lake.merge()
    assert lake.rows() == [{"id": number, "name": "b"} for number in range(1, 6)]
    assert 0 < len(copies) < 7


def test_a_lock_of_the_catalog_that_stays_is_told(
    make_lake: MakeLake, own_postgres: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handlers.spark.iceberg.catalog._MOST_SECONDS", 0.2)
    lake = make_lake(catalog={"uri": (uri := own_postgres().new_database("iceberg"))})
    _take(lake, 1)
    lake.merge()
    _take(lake, 2)
    frozen = sa.create_engine(lake.catalog_properties["uri"].replace("postgresql:", "postgresql+psycopg:"))
    with frozen.begin() as connection:
        connection.exec_driver_sql("SELECT * FROM iceberg_tables FOR UPDATE")
        with pytest.raises(TargetUnavailable, match="lock timeout"):
            lake.merge()
    lake.merge()
    lake.catalog_properties["uri"] = uri.replace("postgresql:", "postgresql+psycopg:")
    assert lake.rows() == _rows(1, 2)


def test_batches_wait_for_a_catalog_that_is_away(
    make_lake: MakeLake, own_postgres: Callable[[], Any]
) -> None:
    server = own_postgres()
    uri = server.new_database("iceberg")
    lake = make_lake(catalog={"uri": uri})
    _take(lake, 1)
    lake.merge()
    server.kill()
    _take(lake, 2)  # it is durable beside the table
    with pytest.raises(TargetUnavailable):
        lake.merge()
    assert "OperationalError" in lake.status()["error"]
    server.start()
    lake.merge()
    lake.catalog_properties["uri"] = uri.replace("postgresql:", "postgresql+psycopg:")
    assert lake.rows() == _rows(1, 2)
