"""A worker is stopped before one file operation of a commit. Meanwhile, others drop the table and make the
next one, with as many versions."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import Elsewhere, Table, shape
from deltalake import DeltaTable

from handlers.spark.delta import checkpoints
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.few_files import Rewrite
from handlers.spark.delta.own_commit import NextVersion
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.beside import ToldHeld
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions

OWN = MergeOptions(engine="auto")
ROWS = shape(id=pa.int64(), name=pa.string())


class Stopped(LocalFiles):
    """`meanwhile` happens once, right before a file whose path contains `at` is put, replaced or removed."""

    def __init__(self, at: str, meanwhile: Callable[[], object]) -> None:
        self._at = at
        self._meanwhile = [meanwhile]

    def _stop(self, path: str) -> None:
        if self._at in path and self._meanwhile:
            self._meanwhile.pop()()

    def put(self, path: str, data: Any) -> None:
        self._stop(path)
        super().put(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._stop(path)
        super().replace(path, data)

    def delete(self, path: str) -> None:
        self._stop(path)
        super().delete(path)


def filled(path: Path, first: int, commits: int) -> Table:
    table = Table(None, path, merge=OWN)
    for number in range(first, first + commits):
        table.put(ROWS, {"id": number, "name": "x"})
        table.merge(table.log.segments[-1])
    return table


def made_anew(table: Table, other: Table) -> Callable[[], None]:
    """Drop the table, and let another one have its place."""

    def make() -> None:
        LocalFiles().rename(table.path, f"{table.path}.away")
        LocalFiles().rename(other.path, table.path)

    return make


def ids(table: Table) -> list[int]:
    found: list[int] = DeltaTable(table.path).to_pyarrow_table().column("id").to_pylist()
    return sorted(found)


def next_version(files: Any, table: Table) -> NextVersion:
    found = WithoutSpark(table.options, files).next_version(table.ref)
    assert found is not None
    return found


@pytest.mark.parametrize("store", [lambda files: files, Elsewhere], ids=["folders", "names"])
@pytest.mark.parametrize("versions", [2, 11])
def test_a_stopped_commit_changes_no_later_table(
    tmp_path: Path, versions: int, store: Callable[[LocalFiles], Any]
) -> None:
    table, other = filled(tmp_path / "t", 0, versions), filled(tmp_path / "other", 50, versions)
    late = next_version(store(Stopped(f"{versions:020d}.json", made_anew(table, other))), table)
    with pytest.raises(MergeConflict):
        late.alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))
    assert ids(table) == [*range(50, 50 + versions)]
    assert DeltaTable(table.path).version() == versions - 1
    assert len(DeltaTable(table.path).schema().fields) == 2


@pytest.mark.parametrize("at", ["checkpoint.parquet", "_last_checkpoint"])
def test_a_stopped_checkpoint_is_not_of_a_later_table(tmp_path: Path, at: str) -> None:
    table, other = filled(tmp_path / "t", 0, 10), filled(tmp_path / "other", 50, 2)
    late = next_version(Stopped(at, made_anew(table, other)), table)
    assert late.alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))
    assert ids(table) == [50, 51]
    assert not [*Path(table.path, "_delta_log").glob("*checkpoint*")]


def test_a_checkpoint_is_not_put_by_name_into_a_later_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = filled(tmp_path / "t", 0, 10), filled(tmp_path / "other", 50, 2)
    write = checkpoints.pq.write_table

    def slowly(*given: Any, **named: Any) -> None:
        write(*given, **named)
        if Path(other.path).exists():
            made_anew(table, other)()

    late = next_version(Elsewhere(LocalFiles()), table)
    monkeypatch.setattr(checkpoints.pq, "write_table", slowly)
    assert late.alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))
    assert ids(table) == [50, 51]


@pytest.mark.parametrize("store", [lambda files: files, Elsewhere], ids=["folders", "names"])
def test_a_stopped_cleaning_removes_no_commit_of_a_later_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Callable[[LocalFiles], Any]
) -> None:
    monkeypatch.setattr(checkpoints, "_CLEAN_EVERY", 20)
    table, other = filled(tmp_path / "t", 0, 20), filled(tmp_path / "other", 50, 3)
    for each in Path(table.path, "_delta_log").iterdir():
        os.utime(each, (1e9, 1e9))
    now = time.time()

    def meanwhile() -> None:
        monkeypatch.setattr(time, "time", lambda: now + 300)
        made_anew(table, other)()

    late = next_version(store(Stopped(f"{0:020d}.json", meanwhile)), table)
    assert late.alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))
    left = {each.name for each in Path(table.path, "_delta_log").iterdir()}
    # By name, the removal that the worker was about to do cannot be held back.
    assert left >= {f"{version:020d}.json" for version in range(isinstance(late.files, Elsewhere), 3)}


def test_a_stopped_first_commit_brings_no_dropped_table_back(tmp_path: Path) -> None:
    """Nor does it change the next one."""
    table, other = Table(None, tmp_path / "t", merge=OWN), filled(tmp_path / "other", 50, 2)
    table.put(ROWS, {"id": 1, "name": "x"})

    def dropped() -> None:
        made_anew(table, other)()
        LocalFiles().rename(table.path, other.path)

    for meanwhile, found in ((dropped, None), (made_anew(table, other), [50, 51])):
        files = Stopped(f"{0:020d}.json", meanwhile)
        with pytest.raises(MergeConflict, match="moved or dropped"):
            WithoutSpark(table.options, files).create(table.ref, {"id": "int"}, {}, "{}")
        assert (ids(table) if found else None) == found
        assert found or not Path(table.path).exists()
        LocalFiles().delete_tree(f"{table.path}.away")


def test_a_first_commit_after_a_drop_is_refused(tmp_path: Path) -> None:
    table = Table(None, tmp_path / "t", merge=OWN)
    table.put(ROWS, {"id": 1, "name": "x"})
    ToldHeld(LocalFiles(), table.ref.log_folder).tell_left(1)
    with pytest.raises(MergeConflict, match="dropped"):
        table.merge(table.log.segments[-1])
    assert not [each for each in Path(table.path).rglob("*") if each.is_file()]
    table.put(ROWS, {"id": 2, "name": "x"})
    table.merge(table.log.segments[-1])
    assert ids(table) == [2]


def test_a_commit_follows_a_table_to_its_new_name(tmp_path: Path) -> None:
    """OPTIMIZE, for instance, is right there, too."""
    table = filled(tmp_path / "t", 0, 3)
    late = next_version(
        Stopped(f"{3:020d}.json", lambda: LocalFiles().rename(table.path, f"{tmp_path}/new")), table
    )
    with pytest.raises(MergeConflict, match="moved or dropped"):
        late.alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))
    assert not Path(table.path).exists()
    newest = Path(tmp_path, "new/_delta_log", f"{3:020d}.json").read_text().splitlines()
    assert [*map(json.loads, newest)]


@pytest.mark.parametrize("at", ["part-", f"{3:020d}.json"])
def test_a_commit_to_a_folder_that_is_removed_meanwhile_is_tried_again(tmp_path: Path, at: str) -> None:
    """It is on another disk, so that another worker's DROP removes it file by file."""
    table = filled(tmp_path / "t", 0, 3)
    files = Stopped(at, lambda: LocalFiles().delete_tree(table.path))
    late = next_version(files, table)
    with pytest.raises(MergeConflict, match="moved or dropped"):
        late.put("WRITE", {}, rows=Rewrite((), [pa.table({"id": [7], "name": ["x"]})]))
    assert not Path(table.path).exists()


def test_what_is_missing_in_a_held_folder_is_told_by_its_own_path(tmp_path: Path) -> None:
    files = LocalFiles().holding(str(tmp_path))
    with pytest.raises(FileNotFoundError) as told:
        files.read(f"{tmp_path}/a")
    assert told.value.filename == f"{tmp_path}/a"
