"""OPTIMIZE and VACUUM of plain tables need no Spark, and lose nothing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_lab import Elsewhere, Table, shape

from handlers.spark.delta import few_files
from handlers.spark.delta import upkeep as upkeep_of_tables
from handlers.spark.delta.evolving import Column
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.upkeep import needs_optimize, optimized
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.interface import Entry
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions

ROWS = shape(id=pa.int64(), amount=pa.float64())
HOUR = 3600.0


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Of five files, one row each."""
    monkeypatch.setattr(few_files, "_TAIL_ROWS", 0)
    made = Table(None, tmp_path / "t", merge=MergeOptions(engine="auto"))
    for number in range(5):
        made.put(ROWS, {"id": number, "amount": math.nan if number else -0.0})
        bring(made)
    return made


def upkeep(table: Table) -> WithoutSpark:
    return WithoutSpark(table.options, LocalFiles())


def bring(table: Table) -> None:
    newest = table.log.segments[-1]
    note = table.note(newest.number, newest.number)
    what = Bringing(table.ref, [newest], table.shape, note, newest.number - 1)
    assert upkeep(table).apply(what) is not None


def files(table: Table) -> list[str]:
    return sorted(each.name for each in Path(table.path).glob("*.parquet"))


def ids(table: Table) -> list[int]:
    return [row[0] for row in table.rows("id")]


def test_small_files_become_one_and_the_log_goes_on(table: Table) -> None:
    before = repr(table.rows())
    assert upkeep(table).optimize(table.ref)
    assert len(deltalake.DeltaTable(table.path).file_uris()) == 1
    assert repr(table.rows()) == before
    newest = deltalake.DeltaTable(table.path).history(1)[0]
    assert (newest["operation"], newest["engineInfo"]) == ("OPTIMIZE", "binlane")
    table.put(ROWS, {"id": 9})
    bring(table)
    assert ids(table) == [0, 1, 2, 3, 4, 9]


def test_only_tables_of_many_small_files_are_rewritten(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert needs_optimize(LocalFiles(), table.ref, 5)
    assert not needs_optimize(LocalFiles(), table.ref, 6)
    monkeypatch.setattr(upkeep_of_tables, "LARGE", 10)
    assert not needs_optimize(LocalFiles(), table.ref, 5)
    assert not needs_optimize(LocalFiles(), Table(None, tmp_path / "none").ref, 1)
    Path(tmp_path, "none/_delta_log").mkdir(parents=True)  # its first commit has failed
    assert not needs_optimize(LocalFiles(), Table(None, tmp_path / "none").ref, 1)


def test_an_optimize_beside_a_commit_is_put_off(table: Table) -> None:
    seen = upkeep(table).next_version(table.ref)
    assert seen is not None
    table.put(ROWS, {"id": 1, "amount": 5.0}, {"id": 2, "op": "delete"})
    bring(table)
    assert optimized(seen, table.ref)
    assert ids(table) == [0, 1, 3, 4]
    assert (1, 5.0) in table.rows()


def test_a_large_table_is_left_to_spark(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_of_tables, "_MOST_BYTES", 100)
    assert not upkeep(table).optimize(table.ref)
    table.options = table.options.model_copy(update={"merge": MergeOptions(engine="spark")})
    assert not upkeep(table).optimize(table.ref)
    assert not upkeep(table).vacuum(table.ref, HOUR)


@pytest.mark.parametrize(
    ("day", "bound"),
    [(6_585_322, "+20000-01-01"), (-735_525, "-0044-03-15"), (364_522_607, "+999999-01-01")],
)
def test_a_year_that_python_does_not_have_is_no_hindrance(table: Table, day: int, bound: str) -> None:
    put_day(table, day, bound)
    assert upkeep(table).optimize(table.ref)
    assert len(deltalake.DeltaTable(table.path).file_uris()) == 1
    with pq.ParquetFile(deltalake.DeltaTable(table.path).file_uris()[0]) as file:
        days = file.read().column("day").cast(pa.int32()).drop_null()
    assert days.to_pylist() == [day]


def test_a_key_of_another_type_is_for_spark(table: Table) -> None:
    table.put(shape(id=pa.string(), amount=pa.float64()), {"id": "1"})
    what = Bringing(table.ref, table.log.segments[-1:], table.shape, table.note(6, 6), 5)
    assert upkeep(table).apply(what) is None


def put_day(table: Table, day: int, bound: str) -> None:
    """A row with this day, whose file has the bound that Spark writes for it."""
    of = shape(id=pa.int64(), amount=pa.float64(), day=pa.date32())
    assert upkeep(table).evolve(table.ref, [Column("`day`", "day", "date")], [])
    table.put(of, {"id": 9, "day": day})
    bring(table)
    commit = sorted(Path(table.path, "_delta_log").glob("*.json"))[-1]
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for add in (action["add"] for action in actions if "add" in action):
        stats = json.loads(add["stats"])
        stats["minValues"]["day"] = stats["maxValues"]["day"] = bound
        add["stats"] = json.dumps(stats)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_a_vacuum_removes_what_no_version_within_the_time_needs(table: Table) -> None:
    for name in ("stray.parquet", "young.parquet"):
        Path(table.path, name).touch()
    os.utime(Path(table.path, "stray.parquet"), (1, 1))
    table.put(ROWS, {"id": 1, "op": "delete"})
    bring(table)
    before = files(table)
    for name in set(before) - {"young.parquet"}:
        os.utime(Path(table.path, name), (1, 1))
    assert upkeep(table).vacuum(table.ref, HOUR)
    assert set(before) - set(files(table)) == {"stray.parquet"}
    assert upkeep(table).vacuum(table.ref, 0)
    assert len(set(files(table)) - {"young.parquet"}) == 4
    assert ids(table) == [0, 2, 3, 4]


def test_a_vacuum_leaves_what_a_commit_may_still_add(table: Table) -> None:
    young, old = Path(table.path, "young.parquet"), Path(table.path, "old.parquet")
    for file in (young, old):
        file.touch()
    os.utime(old, (old.stat().st_mtime - 2 * HOUR,) * 2)
    assert upkeep(table).vacuum(table.ref, 1e-6)
    assert young.exists()
    assert not old.exists()


def test_a_vacuum_finds_the_files_that_spark_puts_into_folders(table: Table) -> None:
    """It does so for tables with column mapping."""
    commit = Path(table.path, "_delta_log", f"{0:020d}.json")
    told = commit.read_text()
    [needed] = (each for each in files(table) if each in told)
    commit.write_text(told.replace(needed, f"aB/{needed}"))
    old = ["cD/part", f"cD/.binlane-{0:032d}.tmp", f".binlane-{1:032d}.tmp", "eE/empty", "_x/y", "zZ/_z"]
    for name in old:
        Path(table.path, name).parent.mkdir(exist_ok=True)
        Path(table.path, name).touch()
    Path(table.path, "eE/empty").unlink()
    Path(table.path, "cD/.part.crc").touch()
    Path(table.path, "aB").mkdir()
    Path(table.path, needed).rename(Path(table.path, "aB", needed))
    for each in Path(table.path).rglob("*"):
        os.utime(each, (1, 1))
    assert upkeep(table).vacuum(table.ref, HOUR)
    left = {str(each.relative_to(table.path)) for each in Path(table.path).rglob("*")}
    assert left.intersection((*old, "eE", "cD/.part.crc")) == {"_x/y", "zZ/_z"}
    assert ids(table) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("store", [lambda files: files, Elsewhere], ids=["folders", "names"])
def test_a_vacuum_leaves_the_files_of_a_table_that_is_moved_here_meanwhile(
    table: Table, tmp_path: Path, store: Callable[[LocalFiles], Any]
) -> None:
    """By another worker, which follows a RENAME TABLE of the source."""
    moved = tmp_path / "new"
    deltalake.write_deltalake(moved, pa.table({"id": [1]}))
    for each in moved.rglob("*"):
        os.utime(each, (1, 1))

    class Meanwhile(LocalFiles):
        def list(self, folder: str) -> Sequence[Entry]:
            if folder == table.path and moved.exists():
                Path(table.path).rename(tmp_path / "old")
                moved.rename(table.path)
            return super().list(folder)

    assert WithoutSpark(table.options, store(Meanwhile())).vacuum(table.ref, HOUR)
    assert ids(table) == [1]


@pytest.mark.parametrize("name", ["orders", "it", "day=1"])
def test_a_vacuum_leaves_other_tables_in_the_folder(table: Table, name: str) -> None:
    """Another handler's `path` may put them there, or another program."""
    other = Path(table.path, name)
    deltalake.write_deltalake(other, pa.table({"id": [1]}))
    plain = [Path(table.path, "bytes", each) for each in ("1.parquet", "data/2.parquet")]
    for each in plain:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.touch()
    for each in Path(table.path).rglob("*"):
        os.utime(each, (1, 1))
    assert upkeep(table).vacuum(table.ref, HOUR)
    assert len(deltalake.DeltaTable(other).to_pyarrow_table()) == 1
    assert all(each.exists() for each in plain)


def test_a_vacuum_leaves_a_table_whose_log_has_whole_paths_to_spark(table: Table) -> None:
    commit = Path(table.path, "_delta_log", f"{0:020d}.json")
    told = commit.read_text()
    [needed] = (each for each in files(table) if each in told)
    commit.write_text(told.replace(needed, f"file:{table.path}/{needed}"))
    for each in Path(table.path).rglob("*"):
        os.utime(each, (1, 1))
    assert not upkeep(table).vacuum(table.ref, HOUR)
    assert Path(table.path, needed).exists()


def configure(table: Table, name: str, value: str) -> None:
    """As Spark would. delta-rs would add features."""
    log = Path(table.path, "_delta_log")
    [action] = (
        each for each in log.joinpath(f"{0:020d}.json").read_text().splitlines() if "metaData" in each
    )
    metadata = json.loads(action)
    metadata["metaData"]["configuration"][name] = value
    newest = deltalake.DeltaTable(table.path).version()
    log.joinpath(f"{newest + 1:020d}.json").write_text(json.dumps(metadata) + "\n")


def test_a_table_s_own_time_applies_if_it_is_longer(table: Table) -> None:
    stray = Path(table.path, "stray.parquet")
    stray.touch()
    week = 7 * 24 * HOUR
    os.utime(stray, (Path(table.path).stat().st_mtime - 1.5 * week,) * 2)
    configure(table, "delta.deletedFileRetentionDuration", "interval 2 weeks")
    assert upkeep(table).vacuum(table.ref, week)
    assert stray.exists()
    configure(table, "delta.deletedFileRetentionDuration", "interval 3 days")
    assert upkeep(table).vacuum(table.ref, week)
    assert not stray.exists()


def test_a_column_is_added_and_nothing_else_changes(table: Table) -> None:
    def metadata() -> tuple[object, ...]:
        found = deltalake.DeltaTable(table.path)
        protocol, told = found.protocol(), found.metadata()
        features = sorted(protocol.writer_features or ()), sorted(protocol.reader_features or ())
        return features, told.id, told.configuration, protocol.min_reader_version

    before = metadata()
    new = [Column("`clock`", "clock", "timestamp_ntz"), Column("`name`", "name", "string")]
    assert upkeep(table).evolve(table.ref, new, [])
    assert metadata() == before
    table.put(
        shape(id=pa.int64(), amount=pa.float64(), clock=pa.timestamp("us"), name=pa.string()),
        {"id": 9, "name": "x"},
    )
    bring(table)
    assert table.rows("id, name")[-2:] == [(4, None), (9, "x")]
    of_struct = [Column("`id`.`part`", "part", "string")]
    assert not upkeep(table).evolve(table.ref, of_struct, [])
    assert not upkeep(table).evolve(table.ref, [Column("`s`", "s", "STRUCT<`a`: int>")], [])
