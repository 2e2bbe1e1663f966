"""Each segment is in the table once, whoever brings it in, and however often."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, shape

from handlers.spark.added import Mode
from handlers.spark.delta.commit_files import merged_in_files, notes_in_files
from handlers.spark.delta.commits import (
    LostCommit,
    MergeConflict,
    exists,
    fenced,
    is_conflict,
    last_note,
    merged_segment,
)
from handlers.spark.log.local_files import LocalFiles
from handlers.spark.session import SharedSpark

ORDERS = shape(id=pa.int64(), name=pa.string())
MODES: list[Mode] = ["replica", "history", "changelog"]


def put(table: Table, *ids: int) -> None:
    place = {"topic": "cdc", "partition": 0, "index": 0}
    table.put(ORDERS, *({"op": "insert", "id": one, "name": "a", "offset": one, **place} for one in ids))


@pytest.mark.parametrize("mode", MODES)
def test_what_the_table_holds_is_not_brought_in_again(make_table: MakeTable, mode: Mode) -> None:
    table = make_table(mode=mode)
    put(table, 1, 2)
    put(table, 3)
    assert table.merged == 0
    table.merge()
    first, second = table.log.segments
    for again in ([second], [first, second]):
        with pytest.raises(MergeConflict, match="already holds segment 2"):
            table.merge(*again)
    assert table.rows("id") == [(1,), (2,), (3,)]
    assert table.merged == 2


@pytest.mark.parametrize("mode", MODES)
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
    # The second may also have come when the first was done between its look and its commit: Delta skips it.
    assert len(told) <= 1
    assert table.merged == 2
    ids = "id, count(*) AS n"
    found = table.sql(f"SELECT {ids} FROM {{t}} GROUP BY id ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(1, 1 if mode == "replica" else 2), (2, 1)]


def test_a_commit_that_failed_leaves_nothing(make_table: MakeTable) -> None:
    table = make_table()
    put(table, 1)
    table.merge()
    put(table, 2)
    with pytest.raises(ZeroDivisionError), fenced(table.spark, table.ref, table.note(2), first=2):
        raise ZeroDivisionError
    assert table.merged == 1
    assert table.spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None
    table.merge()
    assert table.rows("id") == [(1,), (2,)]


def test_commits_say_how_far_the_log_is_merged(make_table: MakeTable) -> None:
    table = make_table()
    assert not exists(table.spark, table.ref)
    assert merged_segment(table.spark, table.ref, is_classic=False) == 0
    put(table, 1)
    put(table, 2)
    table.merge()
    table.sql("OPTIMIZE {t}").collect()
    table.sql("DELETE FROM {t} WHERE id = 1")
    assert exists(table.spark, table.ref)
    assert merged_segment(table.spark, table.ref, is_classic=False) == 2
    note = last_note(table.spark, table.ref)
    assert note == {
        "worker": "worker",
        "handler": "spark",
        "log": "binlane:shop.t",
        "segment": 2,
        "source_time_ms": 1002,
        "marks": {"cdc": {"0": [2, 0]}},
    }


def test_how_far_a_log_is_merged_is_read_from_the_commits_files(make_table: MakeTable) -> None:
    table = make_table(properties={"delta.checkpointInterval": 3})

    def found(log: str = "binlane:shop.t") -> int | None:
        return merged_in_files(LocalFiles(), table.path, log)

    assert found() == 0
    for number in range(1, 6):
        put(table, number)
        table.merge()
        assert found() == table.merged == number
    assert Path(table.path, "_delta_log/_last_checkpoint").exists()
    table.sql("OPTIMIZE {t}").collect()
    for value in range(4):
        table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('mine' = '{value}')")
    assert found() == 5
    assert found("binlane:shop.other") is None
    notes = notes_in_files(LocalFiles(), table.path, 5)
    assert notes is not None
    assert [json.loads(note)["binlane"]["segment"] for note in notes] == [5]
    for file in Path(table.path, "_delta_log").glob("*[0-5].json"):
        file.unlink()  # as Delta does by `delta.logRetentionDuration`
    assert found() is None
    assert table.merged == 5


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_what_a_table_holds_is_known_when_its_history_is_gone(make_table: MakeTable, policy: str) -> None:
    properties = {"delta.checkpointPolicy": policy, "delta.checkpointInterval": 1}
    table = make_table(mode="changelog", properties=properties)
    put(table, 1)
    table.merge()
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('mine' = '1')")
    Path(table.path, "_delta_log", f"{0:020d}.json").unlink()  # as Delta does by `delta.logRetentionDuration`
    by_name = replace(table.ref, path=None)
    assert last_note(table.spark, by_name) is None
    assert merged_segment(table.spark, by_name) == 1
    assert merged_segment(table.spark, table.ref, is_classic=False) == 1
    with (
        pytest.raises(MergeConflict, match="already holds segment 1"),
        fenced(table.spark, by_name, table.note(1), first=1),
    ):
        pass
    assert merged_segment(table.spark, replace(by_name, app_id="binlane:shop.other")) == 0


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
    with pytest.raises(LostCommit, match=r"had segment 2, and now holds 1: .* overwritten"):
        table.merge(table.log.segments[-1])
    assert table.rows("id") == [(1,)]


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
    with fenced(table.spark, table.ref, table.note(2), first=2):
        table.merge(spark=shared.fresh())
        with pytest.raises(Exception, match=r"(?i)concurrent") as told:
            begun.commit(actions, getattr(operation, "MODULE$"))
    assert is_conflict(told.value)
    assert table.rows("id") == [(1,), (2,)]
