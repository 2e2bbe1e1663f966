"""Checkpoints that binlane writes: each reader goes on from them, and nothing of the log is lost in them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_lab import MakeTable, Table, shape

from handlers.spark.delta import checkpoints, log_files
from handlers.spark.delta.checkpoints import clean_log, duration_ms, write_checkpoint
from handlers.spark.delta.commits import exactly_once
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.log_files import Unknown, snapshot_in_files
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.interface import Entry
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions

ROWS = shape(id=pa.int64(), name=pa.string())


def log(table: Table) -> Path:
    return Path(table.path, "_delta_log")


def names(table: Table) -> set[str]:
    return {each.name for each in log(table).iterdir()}


def filled(table: Table, commits: int) -> Table:
    for number in range(commits):
        table.put(ROWS, {"id": number, "name": f"n{number}"}, {"id": number - 2, "op": "delete"})
        table.merge(table.log.segments[-1])
    return table


def of_checkpoint(table: Table, version: int) -> dict[str, list[dict[str, Any]]]:
    rows = pq.read_table(log(table) / f"{version:020d}.checkpoint.parquet").to_pylist(
        maps_as_pydicts="strict"
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for kind, action in row.items():
            if action is not None:
                told = {name: value for name, value in action.items() if value is not None}
                found.setdefault(kind, []).append(told)
    return found


def test_all_readers_go_on_from_a_checkpoint(make_table: MakeTable) -> None:
    table = filled(make_table(merge=MergeOptions(engine="auto")), 12)
    assert table.makers == "d" * 12
    snapshot = snapshot_in_files(LocalFiles(), table.path)
    for version in range(10):  # so that nobody reads what was before it
        (log(table) / f"{version:020d}.json").unlink()
    assert snapshot_in_files(LocalFiles(), table.path) == snapshot
    expected = [(10, "n10"), (11, "n11")]
    assert table.rows() == expected
    read = deltalake.DeltaTable(table.path)
    assert read.version() == 11
    assert sorted(map(tuple, table.sql("SELECT * FROM {t}").collect())) == expected
    table.sql("UPDATE {t} SET name = 'x' WHERE id = 10")
    table.put(ROWS, {"id": 20})
    table.merge()
    assert table.rows() == [(10, "x"), (11, "n11"), (20, None)]


def test_a_checkpoint_is_what_spark_would_have_written(make_table: MakeTable) -> None:
    table = filled(make_table(merge=MergeOptions(engine="auto")), 3)
    table.sql("INSERT INTO {t} VALUES (9, 'other')")
    spark = table.spark
    spark.conf.set("spark.databricks.delta.write.txnAppId", "another")
    spark.conf.set("spark.databricks.delta.write.txnVersion", "7")
    try:
        table.sql("DELETE FROM {t} WHERE id = 9").collect()
    finally:
        spark.conf.unset("spark.databricks.delta.write.txnAppId")
        spark.conf.unset("spark.databricks.delta.write.txnVersion")
    write_checkpoint(LocalFiles(), table.path, table.commits, 0)
    ours = of_checkpoint(table, table.commits)
    (log(table) / f"{table.commits:020d}.checkpoint.parquet").unlink()
    (log(table) / "_last_checkpoint").unlink()
    jvm = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    jvm.clearCache()
    jvm.forTable(spark._jsparkSession, table.path).checkpoint()
    theirs = of_checkpoint(table, table.commits)
    key = {"txn": "appId", "add": "path", "remove": "path"}
    for kind, each in theirs.items():
        for found in (each, ours[kind]):
            found.sort(key=lambda action: action.get(key.get(kind, ""), ""))
            for action in found:
                action.pop("stats_parsed", None)
                for name in ("readerFeatures", "writerFeatures"):
                    action.get(name, []).sort()
    told = {
        kind: [{**each, "tags": None, "lastUpdated": None} for each in found] for kind, found in ours.items()
    }
    wanted = {
        kind: [{**each, "tags": None, "lastUpdated": None} for each in found]
        for kind, found in theirs.items()
    }
    assert told == wanted


def test_a_late_checkpoint_is_left_to_the_newer_one(tmp_path: Path) -> None:
    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 12)
    newest = {name for name in names(table) if "checkpoint" in name}
    last = (log(table) / "_last_checkpoint").read_bytes()
    write_checkpoint(LocalFiles(), table.path, 5, 0)
    assert {name for name in names(table) if "checkpoint" in name} == newest
    assert (log(table) / "_last_checkpoint").read_bytes() == last
    assert len(deltalake.DeltaTable(table.path, version=6).to_pyarrow_table()) == 2


def test_checkpoints_go_on_after_those_of_spark(make_table: MakeTable) -> None:
    table = filled(make_table(merge=MergeOptions(engine="auto")), 3)
    table.sql("INSERT INTO {t} VALUES (9, 'other')")
    table.sql("OPTIMIZE {t}").collect()
    assert any('"stats"' in line for line in _lines(table, table.commits) if '"remove"' in line)
    write_checkpoint(LocalFiles(), table.path, table.commits, 0)
    table.sql("INSERT INTO {t} VALUES (10, 'other')")
    jvm = table.spark._jvm.org.apache.spark.sql.delta.DeltaLog
    jvm.clearCache()
    jvm.forTable(table.spark._jsparkSession, table.path).checkpoint()
    assert any("stats_parsed" in each for each in of_checkpoint(table, table.commits)["add"])
    table.put(ROWS, {"id": 11})
    table.merge()
    newest = table.commits
    write_checkpoint(LocalFiles(), table.path, newest, 0)
    # Spark waits for three seconds if the checksum of `_last_checkpoint` is wrong.
    assert not (log(table) / "._last_checkpoint.crc").exists()
    for version in range(newest):
        (log(table) / f"{version:020d}.json").unlink()
    assert sorted(id for id, _ in table.rows()) == [1, 2, 9, 10, 11]
    assert all("stats" in each for each in of_checkpoint(table, newest)["add"])


def test_what_a_checkpoint_cannot_hold_is_not_lost_in_one(tmp_path: Path) -> None:
    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 2)
    for action in (
        {"domainMetadata": {"domain": "delta.clustering", "configuration": "{}", "removed": False}},
        {"add": {"path": "x", "baseRowId": 1}},
        {"whatever": {"new": 1}},
    ):
        commit = log(table) / f"{2:020d}.json"
        commit.write_text(json.dumps(action) + "\n")
        with pytest.raises(Unknown):
            write_checkpoint(LocalFiles(), table.path, 2, 0)
    assert not any(".checkpoint." in name for name in names(table))


def test_a_commit_stays_though_python_cannot_read_the_checkpoint_before(tmp_path: Path) -> None:
    """Spark writes bounds as values, and dates may be beyond the year 9999."""
    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 11)
    file = log(table) / f"{10:020d}.checkpoint.parquet"
    read = pq.read_table(file)
    add = read.column("add").combine_chunks()
    parsed = pa.array(
        [{"maxValues": {"day": 6_585_322}}] * len(add),
        pa.struct({"maxValues": pa.struct({"day": pa.int32()})}),
    )
    parsed = parsed.cast(pa.struct({"maxValues": pa.struct({"day": pa.date32()})}))
    names = [*(field.name for field in add.type), "stats_parsed"]
    whole = pa.StructArray.from_arrays([*add.flatten(), parsed], names, mask=add.is_null())
    pq.write_table(read.set_column(read.schema.get_field_index("add"), "add", whole), file)
    filled(table, 10)
    assert deltalake.DeltaTable(table.path).version() == 20
    assert table.rows() == [(10, "n10"), (8, "n8"), (9, "n9")]


def test_removals_expire_and_files_that_come_back_stay(tmp_path: Path) -> None:
    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 3)
    [add] = [json.loads(line)["add"] for line in _lines(table, 0) if '"add"' in line]
    (log(table) / f"{3:020d}.json").write_text(json.dumps({"add": add}) + "\n")
    write_checkpoint(LocalFiles(), table.path, 3, 0)
    found = of_checkpoint(table, 3)
    assert len(found["remove"]) == 1
    assert add["path"] in {each["path"] for each in found["add"]}
    (log(table) / f"{3:020d}.checkpoint.parquet").unlink()
    write_checkpoint(LocalFiles(), table.path, 3, int(time.time() * 1000) + 10_000)
    assert "remove" not in of_checkpoint(table, 3)


def test_removals_of_the_checkpoint_before_stay_until_they_expire(tmp_path: Path) -> None:
    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 6)
    [back] = [json.loads(line)["add"] for line in _lines(table, 0) if '"add"' in line]
    [old] = [json.loads(line)["remove"] for line in _lines(table, 2) if '"remove"' in line]
    [again] = [json.loads(line)["remove"] for line in _lines(table, 3) if '"remove"' in line]
    commit = log(table) / f"{2:020d}.json"
    commit.write_text(commit.read_text().replace(str(old["deletionTimestamp"]), "5"))
    late = {"remove": {**again, "deletionTimestamp": again["deletionTimestamp"] + 1}}
    (log(table) / f"{6:020d}.json").write_text(f"{json.dumps({'add': back})}\n{json.dumps(late)}\n")
    write_checkpoint(LocalFiles(), table.path, 6, 9)
    expected = of_checkpoint(table, 6)
    assert late["remove"]["deletionTimestamp"] in {each["deletionTimestamp"] for each in expected["remove"]}
    assert old["path"] not in {each["path"] for each in expected["remove"]}
    for expired_ms in (0, 9):
        for version in (6, 4):
            (log(table) / f"{version:020d}.checkpoint.parquet").unlink(missing_ok=True)
        write_checkpoint(LocalFiles(), table.path, 4, 0)
        write_checkpoint(LocalFiles(), table.path, 6, expired_ms)
        found = of_checkpoint(table, 6)
        removed = [each for each in found.pop("remove") if expired_ms or each["path"] != old["path"]]
        assert sorted(removed, key=str) == sorted(expected["remove"], key=str)
        assert found == {kind: each for kind, each in expected.items() if kind != "remove"}
        last = json.loads((log(table) / "_last_checkpoint").read_text())
        assert last["size"] == len(pq.read_table(log(table) / f"{6:020d}.checkpoint.parquet"))


def test_files_that_were_removed_cost_readers_and_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 21)
    assert len(of_checkpoint(table, 20)["remove"]) == 20
    taken: list[str] = []
    convert = msgspec.convert
    monkeypatch.setattr(
        log_files.msgspec, "convert", lambda row, kind: taken.extend(row) or convert(row, kind)
    )
    monkeypatch.setattr(log_files, "_MOST_FILES", 1)
    found = snapshot_in_files(LocalFiles(), table.path)
    assert found is not None
    assert sorted(taken) == ["add", "metaData", "protocol", "txn"]
    assert (len(found.files), found.removed) == (1, {})
    with_removed = snapshot_in_files(LocalFiles(), table.path, with_removed=True)
    assert with_removed is not None
    assert len(with_removed.removed) == 20
    for limit in ("_MOST_FILES", "_MOST_ACTIONS"):
        with monkeypatch.context() as low:
            low.setattr(log_files, limit, 0)
            assert snapshot_in_files(LocalFiles(), table.path) is None


def test_the_log_before_an_old_checkpoint_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 3)
    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 8)
    now = time.time()
    (log(table) / f".binlane-{0:032d}.tmp").touch()
    for name in names(table):
        old = not name[:20].isdigit() or int(name[:20]) < 5
        os.utime(log(table) / name, (now - (1000 if old else 0),) * 2)
    before = table.rows()
    clean_log(LocalFiles(), table.path, int((now - 500) * 1000))
    left = sorted(name for name in names(table) - {"_last_checkpoint"})
    assert left[0].startswith(f"{3:020d}"), "a checkpoint older than the limit is where the log begins"
    assert f"{6:020d}.checkpoint.parquet" in left
    assert table.rows() == before


def test_the_log_s_cleaning_ends_at_the_first_young_version(tmp_path: Path) -> None:
    asked: list[str] = []

    class Asked(LocalFiles):
        def list_after(self, folder: str, name: str) -> Iterator[Entry]:
            for entry in super().list_after(folder, name):
                asked.append(entry.name)
                yield entry

    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 12)
    for name in (".nfs00", f".{5:020d}.json.crc", f"{2:020d}.checkpoint.parquet"):
        (log(table) / name).touch()
    now = time.time()
    for version in range(4):
        for each in log(table).glob(f"{version:020d}.*"):
            os.utime(each, (now - 1000,) * 2)
    clean_log(Asked(), table.path, int((now - 500) * 1000))
    assert asked[0] == ".nfs00"
    assert asked[-1] == f"{4:020d}.json"
    assert min(name for name in names(table) if name[0] == "0") == f"{2:020d}.checkpoint.parquet"


class Cleaned(LocalFiles):
    """A log that another worker cleans after the table, and then `_last_checkpoint`, was read."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._hints = 0

    def read(self, path: str) -> bytes:
        if self._hints == 2 and path.endswith(f"{2:020d}.json"):
            write_checkpoint(LocalFiles(), self._table.path, 3, 0)
            for version in range(3):
                (log(self._table) / f"{version:020d}.json").unlink(missing_ok=True)
        self._hints += path.endswith("_last_checkpoint")
        return super().read(path)


def test_no_commit_is_overlooked_in_a_log_that_is_cleaned_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(Table(None, tmp_path / "t", merge=MergeOptions(engine="auto")), 4)
    write_checkpoint(LocalFiles(), table.path, 1, 0)
    monkeypatch.setattr(exactly_once, "_committed", {})  # the other worker made the last two commits
    third, last = table.log.segments[-2:]
    what = Bringing(table.ref, [third, last], table.shape, table.note(third.number, last.number), 2)
    with pytest.raises(MergeConflict, match="already has segment 4"):
        WithoutSpark(table.options, Cleaned(table)).apply(what)


def _lines(table: Table, version: int) -> list[str]:
    return (log(table) / f"{version:020d}.json").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("interval 7 days", 7 * 86_400_000),
        ("INTERVAL 2 Weeks", 14 * 86_400_000),
        ("1 hour", 3_600_000),
        ("interval 400 days 12 hours", None),
        ("interval 1 month", None),
    ],
)
def test_intervals_of_properties(interval: str, expected: int | None) -> None:
    assert duration_ms(interval) == expected


def test_a_table_without_files_gets_further_checkpoints(make_table: MakeTable) -> None:
    table = make_table(merge=MergeOptions(engine="auto"))
    table.put(ROWS, {"id": 1})
    table.merge()
    table.put(ROWS, {"id": 1, "op": "delete"})
    table.merge()
    write_checkpoint(LocalFiles(), table.path, 1, 0)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES (own = 1)")
    write_checkpoint(LocalFiles(), table.path, 2, 0)
    [removal] = of_checkpoint(table, 1)["remove"]
    assert of_checkpoint(table, 2)["remove"] == [removal]
    assert "add" not in of_checkpoint(table, 2)
