"""Each segment is in the table once, whoever brings it in, and however often."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, shape

from handlers.spark.delta.commits import exactly_once as commits
from handlers.spark.delta.commits.commit_notes import LostCommit, held_in_files, notes_in_files
from handlers.spark.delta.commits.exactly_once import MergeConflict, fenced, is_conflict
from handlers.spark.delta.commits.held_segments import (
    exists,
    held_by,
    last_note,
)
from handlers.spark.log.beside import Held, ToldHeld
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.rows.shape import Mode
from handlers.spark.runtime.session import SharedSpark
from handlers.spark.table_ref import TableRef

ORDERS = shape(id=pa.int64(), name=pa.string())
MODES: list[Mode] = ["replica", "history", "changelog"]


def put(table: Table, *ids: int) -> None:
    place = {"topic": "cdc", "partition": 0, "index": 0}
    table.put(ORDERS, *({"op": "insert", "id": one, "name": "a", "offset": one, **place} for one in ids))


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode == "replica" else pytest.mark.soak) for mode in MODES]
)
def test_what_the_table_holds_is_not_brought_in_again(make_table: MakeTable, mode: Mode) -> None:
    table = make_table(mode=mode)
    put(table, 1, 2)
    put(table, 3)
    assert table.merged == 0
    table.merge()
    first, second = table.log.segments
    for again in ([second], [first, second]):
        with pytest.raises(MergeConflict, match="already has segment 2"):
            table.merge(*again)
    assert table.rows("id") == [(1,), (2,), (3,)]
    assert table.merged == 2


@pytest.mark.parametrize(
    "mode", ["replica", *(pytest.param(each, marks=pytest.mark.soak) for each in ("changelog", "history"))]
)
def test_of_two_at_once_one_brings_it_in(make_table: MakeTable, shared: SharedSpark, mode: Mode) -> None:
    table = make_table(mode=mode)
    put(table, 1)
    table.merge()
    put(table, 1, 2)
    segment = table.log.segments[-1]
    ready, told = threading.Barrier(2), []

    def bring() -> None:
        spark = shared.fresh()
        ready.wait()
        try:
            table.merge(segment, spark=spark)
        except MergeConflict as error:
            told.append(error)

    threads = [threading.Thread(target=bring) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1  # though Delta passes over the second's command without a word
    assert table.merged == 2
    ids = "id, count(*) AS n"
    found = table.sql(f"SELECT {ids} FROM {{t}} GROUP BY id ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(1, 1 if mode == "replica" else 2), (2, 1)]


@pytest.mark.soak
def test_a_commit_that_failed_leaves_nothing(make_table: MakeTable) -> None:
    table = make_table()
    put(table, 1)
    table.merge()
    put(table, 2)
    with pytest.raises(ZeroDivisionError), fenced(table.spark, table.ref, table.note(2, 2)):
        raise ZeroDivisionError
    assert table.merged == 1
    assert table.spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None
    table.merge()
    assert table.rows("id") == [(1,), (2,)]


def test_commits_say_how_far_the_log_is_merged(make_table: MakeTable) -> None:
    table = make_table()
    assert not exists(table.spark, table.ref)
    assert held_by(table.spark, table.ref, is_classic=False).last == 0
    put(table, 1)
    put(table, 2)
    table.merge()
    table.sql("OPTIMIZE {t}").collect()
    table.sql("DELETE FROM {t} WHERE id = 1")
    assert exists(table.spark, table.ref)
    assert held_by(table.spark, table.ref, is_classic=False).last == 2
    note = last_note(table.spark, table.ref)
    assert note == {
        "worker": "worker",
        "handler": "spark",
        "log": "binlane:shop.t",
        "first": 1,
        "segment": 2,
        "commit": ANY,
        "source_time_ms": 1002,
        "marks": {"cdc": {"0": [2, 0]}},
    }


@pytest.mark.soak
def test_how_far_a_log_is_merged_is_read_from_the_commits_files(make_table: MakeTable) -> None:
    table = make_table(properties={"delta.checkpointInterval": 2})

    def found(log: str = "binlane:shop.t") -> int | None:
        held = held_in_files(LocalFiles(), table.path, log)
        return None if held is None else held.last

    assert found() == 0
    for number in range(1, 4):
        put(table, number)
        table.merge()
        assert found() == table.merged == number
    assert Path(table.path, "_delta_log/_last_checkpoint").exists()
    table.sql("OPTIMIZE {t}").collect()
    for value in range(2):
        table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('mine' = '{value}')")
    assert found() == 3
    assert found("binlane:shop.other") == 0
    notes = notes_in_files(LocalFiles(), table.path, 3)
    assert notes is not None
    assert [json.loads(note)["binlane"]["segment"] for note in notes] == [3]
    for file in Path(table.path, "_delta_log").glob("*[0-3].json"):
        file.unlink()  # as Delta does by `delta.logRetentionDuration`
    assert found() is found("binlane:shop.other") is None
    ToldHeld(LocalFiles(), table.ref.log_folder).tell(Held(3, 3))
    assert table.merged == 3


# That Delta reads its newer checkpoints as it does these is its own affair.
@pytest.mark.parametrize("policy", ["classic", pytest.param("v2", marks=pytest.mark.soak)])
@pytest.mark.soak
def test_what_a_table_holds_is_known_when_its_history_is_gone(make_table: MakeTable, policy: str) -> None:
    properties = {"delta.checkpointPolicy": policy, "delta.checkpointInterval": 1}
    table = make_table(mode="changelog", properties=properties)
    put(table, 1)
    put(table, 2)
    table.merge()
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('mine' = '1')")
    Path(table.path, "_delta_log", f"{0:020d}.json").unlink()  # as Delta does by `delta.logRetentionDuration`
    by_name = replace(table.ref, path=None)
    assert last_note(table.spark, by_name) is None
    for ref, is_classic in ((by_name, True), (table.ref, False), (table.ref, True)):
        with pytest.raises(BrokenLog, match=r"has segment 1 of its log, and perhaps .*empty file"):
            held_by(table.spark, ref, is_classic)
    told = ToldHeld(LocalFiles(), table.ref.log_folder)
    told.tell(Held(1, 2))
    for ref, is_classic in ((by_name, True), (table.ref, False), (table.ref, True)):
        assert held_by(table.spark, ref, is_classic) == Held(1, 2)
    told.tell_left(3)  # renamed; one of its old name is made, and leaves; and it comes back
    told.tell(Held(4, 5))
    told.tell_left(6)
    assert held_by(table.spark, table.ref) == Held(1, 2)
    with (
        pytest.raises(MergeConflict, match="already has segment 2"),
        fenced(table.spark, by_name, table.note(1, 1)),
    ):
        pass
    assert held_by(table.spark, replace(by_name, app_id="binlane:shop.other")).last == 0


@pytest.mark.soak
def test_a_commit_that_another_writer_has_overwritten_is_noticed(make_table: MakeTable) -> None:
    """Where a store takes the same file twice, Delta cannot prevent it."""
    table = make_table(mode="changelog")
    for number in (1, 2):
        put(table, number)
        table.merge()
    commit = Path(table.path, "_delta_log", f"{1:020d}.json")
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    others = [line for line in lines if "txn" not in line and "add" not in line]
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    commit.with_suffix(".crc").unlink(missing_ok=True)
    commit.write_text("\n".join(map(json.dumps, others)))
    table.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    put(table, 3)
    with pytest.raises(LostCommit, match=r"had segment 2 of its log, and now has 1: .* overwritten"):
        table.merge(table.log.segments[-1])
    assert table.rows("id") == [(1,)]


@pytest.mark.soak
def test_a_commit_in_between_is_a_conflict(make_table: MakeTable, shared: SharedSpark) -> None:
    table = make_table()
    put(table, 1)
    table.merge()
    put(table, 2)
    jvm = table.spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(table.spark._jsparkSession, table.path)
    nothing = jvm.scala.Option.empty()
    begun = log.startTransaction(nothing, nothing)
    begun.txnVersion(table.ref.app_id)
    operation = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$")
    own = jvm.org.apache.spark.sql.delta.actions.Action.fromJson(
        f'{{"txn": {{"appId": "{table.ref.app_id}", "version": 2}}}}'
    )
    actions = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.List.of(own)).toSeq()
    table.merge(spark=shared.fresh())
    with pytest.raises(Exception, match=r"(?i)concurrent") as told:
        begun.commit(actions, getattr(operation, "MODULE$"))
    assert is_conflict(told.value)
    assert table.rows("id") == [(1,), (2,)]


def keyless(table: Table, *ids: int) -> None:
    table.put(shape((), id=pa.int64(), name=pa.string()), *({"op": "insert", "id": one} for one in ids))


CASES = [
    pytest.param("appended", "changelog", marks=pytest.mark.soak),
    pytest.param("of a catalog", "changelog", marks=pytest.mark.soak),
    pytest.param("merged", "history", marks=pytest.mark.soak),
    pytest.param("without a key", "replica", marks=pytest.mark.soak),
    pytest.param("made", "replica", marks=pytest.mark.soak),
    pytest.param("appended", "replica", marks=pytest.mark.soak),
    ("written anew", "replica"),
]


@pytest.mark.parametrize(("case", "mode"), CASES)
def test_what_another_worker_brings_between_a_look_and_its_command_is_not_brought_again(
    make_table: MakeTable, shared: SharedSpark, monkeypatch: pytest.MonkeyPatch, case: str, mode: Mode
) -> None:
    """The other one knows less of the log: the last segment of the command is in no table yet."""
    table = make_table(mode=mode)
    write = keyless if case == "without a key" else put
    if case == "of a catalog":
        table.ref = replace(table.ref, sql="raced", path=None)
    if case == "appended":
        monkeypatch.setattr("handlers.spark.delta.modes.replica._SMALL", 0)
    if case != "made":
        write(table, 1)
        table.merge()
    for number in (2, 3, 4):
        write(table, number)
    waiting, look, looked = table.log.after(table.merged), commits._look, []

    def overtaken(session: Any, ref: TableRef) -> Any:
        found = look(session, ref)
        looked.append(found)
        if len(looked) == 1:
            table.merge(*waiting[:2], spark=shared.fresh())
        return found

    monkeypatch.setattr(commits, "_look", overtaken)
    with pytest.raises(MergeConflict, match=f"another worker merged segment {waiting[0].number},"):
        table.merge(*waiting)
    assert table.merged == waiting[1].number
    table.merge()
    assert table.merged == waiting[2].number
    found = table.sql("SELECT id, count(*) FROM {t} GROUP BY id ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(id, 1) for id in range(2 if case == "made" else 1, 5)]
