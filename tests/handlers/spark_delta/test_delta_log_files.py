"""A table's files, sizes, rows and columns by its log's files: as delta-rs and Spark tell them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import pyarrow as pa
import pytest
from spark_sessions import SparkKeeper

from handlers.spark.delta.checkpoints import write_checkpoint
from handlers.spark.delta.commits.commit_notes import held_in_files, notes_in_files
from handlers.spark.delta.log_files import metadata_in_files, snapshot_in_files
from handlers.spark.log.stores.interface import Entry, FilesError
from handlers.spark.log.stores.local import LocalFiles

TABLE_OF_ROWS = pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int32()), ("y", pa.int32())]))])


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": id, "at": {"x": id, "y": 0}} for id in ids], schema=TABLE_OF_ROWS)


class State(NamedTuple):
    version: int
    columns: Mapping[str, Sequence[str]]
    files: int
    bytes: int
    rows: int


def state(folder: Path) -> State | None:
    found = snapshot_in_files(LocalFiles(), str(folder))
    if found is None or found.rows is None:
        return None
    return State(found.version, found.metadata.columns, len(found.files), found.bytes, found.rows)


def log_of(folder: Path, version: int, kind: str = "json") -> Path:
    return folder / "_delta_log" / f"{version:020d}.{kind}"


def edit(file: Path, kind: str, **changes: Any) -> None:
    """Another hand has written these into a commit's actions of a kind."""
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        action.get(kind, {}).update(changes)
    file.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("seed", range(8))
def test_the_same_as_delta_rs_after_each_of_many_commits(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    deltalake.write_deltalake(tmp_path, rows(0, 1, 2))
    for number in range(12):
        step = chosen.choice(("append", "append", "overwrite", "delete", "optimize", "checkpoint", "clean"))
        table = deltalake.DeltaTable(tmp_path)
        if step in {"append", "overwrite"}:
            deltalake.write_deltalake(table, rows(*range(number, number + chosen.randint(1, 4))), mode=step)
        elif step == "delete":
            table.delete(f"id % 3 = {chosen.randrange(3)}")
        elif step == "optimize":
            table.optimize.compact()
        else:
            table.create_checkpoint()
        if step == "clean":  # as Delta does it with commits of some age
            for version in range(table.version()):
                log_of(tmp_path, version).unlink(missing_ok=True)
        table = deltalake.DeltaTable(tmp_path)
        adds = pa.table(table.get_add_actions(flatten=True))
        assert state(tmp_path) == (
            table.version(),
            {"id": (), "at": ["x", "y"]},
            adds.num_rows,
            sum(adds.column("size_bytes").to_pylist()),
            sum(adds.column("num_records").to_pylist()),
        )


@pytest.mark.parametrize("emptied", [1, 2])
@pytest.mark.parametrize(
    "read",
    [
        snapshot_in_files,
        lambda files, path: held_in_files(files, path, "log"),
        lambda files, path: held_in_files(files, path, "log", 2),  # as Spark's commits do
        lambda files, path: notes_in_files(files, path, 10),
    ],
)
def test_an_empty_commit_is_told(tmp_path: Path, emptied: int, read: Callable[..., object]) -> None:
    """A writer that does not wait for the disk leaves it at a power loss. delta-rs and Spark pass over it."""
    for number in range(3):
        deltalake.write_deltalake(tmp_path, rows(number), mode="append")
    log_of(tmp_path, emptied).write_text("")
    with pytest.raises(FilesError, match=rf"000{emptied}\.json is empty, as after a power loss"):
        read(LocalFiles(), str(tmp_path))


def test_columns_of_an_empty_commit_are_told(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows(1))
    log_of(tmp_path, 1).write_text("")
    with pytest.raises(FilesError, match=r"0001\.json is empty"):
        metadata_in_files(LocalFiles(), str(tmp_path))
    with pytest.raises(FilesError, match=r"0001\.json is empty"):
        write_checkpoint(LocalFiles(), str(tmp_path), 1, 0)


def test_a_deletion_vector_takes_its_rows_from_a_file_that_stays(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows(1, 2, 3))
    actions = (json.loads(line) for line in log_of(tmp_path, 0).read_text().splitlines())
    [added] = [action["add"] for action in actions if "add" in action]
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 36}
    commit = [
        {"add": {**added, "deletionVector": {**vector, "offset": 1, "cardinality": 2}}},
        {"remove": {"path": added["path"], "dataChange": True}},
    ]
    log_of(tmp_path, 1).write_text("\n".join(map(json.dumps, commit)))
    found = state(tmp_path)
    assert found is not None
    assert (found.version, found.files, found.bytes, found.rows) == (1, 1, added["size"], 1)


@pytest.mark.soak
def test_the_same_as_spark_with_deletion_vectors_other_names_and_its_checkpoints(
    tmp_path: Path, spark_keeper: SparkKeeper
) -> None:
    spark = spark_keeper.get().session
    table = f"delta.`{tmp_path}`"
    properties = {"enableDeletionVectors": True, "columnMapping.mode": "name", "checkpointInterval": 2}
    told = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    for statement in (
        f"CREATE TABLE {table} USING delta TBLPROPERTIES ({told}) AS SELECT id, id AS old FROM range(9)",
        f"DELETE FROM {table} WHERE id = 3",
        f"ALTER TABLE {table} RENAME COLUMN old TO new",
        f"DELETE FROM {table} WHERE id = 4",
        f"INSERT INTO {table} VALUES (9, 9)",
    ):
        spark.sql(statement)
        [detail] = spark.sql(f"DESCRIBE DETAIL {table}").collect()
        seen = spark.table(table)
        found = state(tmp_path)
        assert found is not None
        assert (found.files, found.bytes) == (detail.numFiles, detail.sizeInBytes), statement
        assert (found.rows, [*found.metadata.columns]) == (seen.count(), seen.columns), statement
    assert found.version == 4
    assert list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))


def test_what_the_files_do_not_tell_is_left_to_spark(tmp_path: Path) -> None:
    def made(name: str) -> Path:
        folder = tmp_path / name
        deltalake.write_deltalake(folder, rows(1))
        deltalake.write_deltalake(folder, rows(2), mode="append")
        deltalake.write_deltalake(folder, rows(3), mode="append")
        return folder

    assert state(made("whole")) is not None
    gap = made("gap")
    log_of(gap, 1).unlink()
    begun_late = made("begun late")
    log_of(begun_late, 0).unlink()
    no_counts = made("no counts")
    edit(log_of(no_counts, 1), "add", stats=None)
    new_feature = made("new feature")
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]}
    edit(log_of(new_feature, 0), "protocol", **features)
    bytes_of_nobody = made("bytes of nobody")
    log_of(bytes_of_nobody, 1).write_bytes(
        log_of(bytes_of_nobody, 1).read_bytes().replace(b"part-", b"p\xffrt-")
    )
    no_schema = made("no schema")
    edit(log_of(no_schema, 0), "metaData", schemaString="null")
    half_a_schema = made("half a schema")
    edit(log_of(half_a_schema, 0), "metaData", schemaString='{"type":"struct","feilds":[]}')
    newer = made("newer")
    edit(log_of(newer, 0), "protocol", minReaderVersion=9)
    no_protocol = made("no protocol")
    lines = log_of(no_protocol, 0).read_text().splitlines()
    log_of(no_protocol, 0).write_text("\n".join(line for line in lines if "protocol" not in line))
    less_than_none = made("less than none")
    edit(log_of(less_than_none, 1), "add", stats='{"numRecords":-1}')
    another_vector = made("another vector")
    [path] = (
        json.loads(line)["add"]["path"]
        for line in log_of(another_vector, 1).read_text().splitlines()
        if '"add"' in line
    )
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "cardinality": 1}
    removed = {"remove": {"path": path, "dataChange": True, "deletionVector": vector}}
    log_of(another_vector, 3).write_text(json.dumps(removed))
    faults = (bytes_of_nobody, no_schema, half_a_schema, newer, no_protocol, less_than_none, another_vector)
    broken = made("broken")
    log_of(broken, 2).write_bytes(b'{"add"')
    broken_checkpoint = made("broken checkpoint")
    log_of(broken_checkpoint, 2, "checkpoint.parquet").write_bytes(b"PAR1")
    second_kind = made("second kind")
    deltalake.DeltaTable(second_kind).create_checkpoint()
    checkpoint = log_of(second_kind, 2, "checkpoint.parquet")
    checkpoint.rename(log_of(second_kind, 2, "checkpoint.0a1b2c3d-0000-4000-8000-000000000000.parquet"))
    for version in range(3):
        log_of(second_kind, version).unlink()
    for folder in (gap, begun_late, no_counts, new_feature, broken, broken_checkpoint, second_kind, *faults):
        assert state(folder) is None, folder.name
    assert state(tmp_path / "nothing") is None


def test_a_checkpoint_of_several_parts_counts_only_when_all_are_there(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows(1))
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    whole = log_of(tmp_path, 0, "checkpoint.parquet")
    parts = [log_of(tmp_path, 0, f"checkpoint.{number:010d}.{2:010d}.parquet") for number in (1, 2)]
    actions = pa.parquet.read_table(whole)
    whole.unlink()
    log_of(tmp_path, 0).unlink()
    pa.parquet.write_table(actions.slice(0, 2), parts[0])
    assert state(tmp_path) is None
    pa.parquet.write_table(actions.slice(2), parts[1])
    found = state(tmp_path)
    assert found is not None
    assert (found.version, found.files, found.rows) == (0, 1, 1)


class Counting(LocalFiles):
    """Which entries of folders were looked at."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def list_after(self, folder: str, name: str) -> Iterator[Entry]:
        for entry in super().list_after(folder, name):
            self.seen.append(entry.name)
            yield entry


def long_log(folder: Path) -> None:
    """Of commits 0 to 6, with checkpoints of 2 and 4."""
    for version in range(7):
        deltalake.write_deltalake(folder, rows(version), mode="append")
        if version in (2, 4):
            deltalake.DeltaTable(folder).create_checkpoint()


def test_only_the_log_since_the_last_checkpoint_is_looked_at(tmp_path: Path) -> None:
    long_log(tmp_path)
    files = Counting()
    found = snapshot_in_files(files, str(tmp_path))
    assert found is not None
    assert (found.version, found.rows) == (6, 7)
    numbers = ["4.checkpoint.parquet", "4.json", "5.json", "6.json"]
    assert files.seen == [*(f"{number:0>{len(number) + 19}}" for number in numbers), "_last_checkpoint"]


@pytest.mark.parametrize(
    "hint",
    [
        *(b"", b"{", b"\xff", b"[" * 100_000, b"{}", b'{"version": "4"}', b'{"version": null}'),
        *(b'{"version": %d}' % number for number in (-5, 0, 1, 2, 3, 5, 6, 7, 10**18, 10**30)),
        None,
    ],
)
def test_a_log_whose_last_checkpoint_is_told_wrongly_is_read_all_the_same(
    tmp_path: Path, hint: bytes | None
) -> None:
    long_log(tmp_path)
    expected = state(tmp_path)
    last = tmp_path / "_delta_log/_last_checkpoint"
    last.unlink()
    if hint is not None:
        last.write_bytes(hint)
    assert state(tmp_path) == expected
    log_of(tmp_path, 4, "checkpoint.parquet").unlink()
    assert state(tmp_path) == expected
    for version in range(3):
        log_of(tmp_path, version).unlink()
    assert state(tmp_path) == expected
    log_of(tmp_path, 3).unlink()
    assert state(tmp_path) is None


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_a_table_is_can_be_told_by_its_newest_commit_or_checkpoint(
    tmp_path: Path, has_checkpoint: bool
) -> None:
    rows = pa.table({"id": pa.array([1]), "region": pa.array(["eu"])})
    configuration = {"delta.appendOnly": "true"}
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, rows, partition_by=["region"], configuration=configuration)
    if has_checkpoint:
        deltalake.DeltaTable(path).create_checkpoint()
    deltalake.write_deltalake(path, rows, mode="append")
    found = metadata_in_files(LocalFiles(), path)
    assert found is not None
    assert (found.partition_columns, found.configuration) == (["region"], configuration)
    assert [each["name"] for each in json.loads(found.schema_string)["fields"]] == ["id", "region"]
    assert metadata_in_files(LocalFiles(), f"{path}/not there") is None
