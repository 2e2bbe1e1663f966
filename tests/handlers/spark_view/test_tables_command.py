"""`binlane tables`: what a lake holds is told from the lake alone."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from verify_lab import Stage
from view_lab import ORDERS, HandMade, shape

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import fenced
from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import Statement, columns_of
from handlers.spark.read import facts
from handlers.spark.rows.shape import log_schema
from handlers.spark.runtime.versions import JavaError
from worker.verifying import spark_lakes

COLUMNS = "id BIGINT, name STRING, price INT"
SECOND = datetime(2026, 11, 21, 8, 0, 1, tzinfo=UTC)
MILLISECONDS = int(SECOND.timestamp() * 1000)


def row(id: int, **more: Any) -> dict[str, Any]:
    return {"op": "upsert", "source_time": SECOND, "id": id, "name": "n", "price": 1, **more}


def merge(table: HandMade, up_to: int) -> None:
    """As the worker commits: a note, and the number of the last segment."""
    with fenced(table.spark, table.ref, CommitNote("w", "spark", up_to, up_to, MILLISECONDS, {})):
        table.spark.sql(f"INSERT INTO {table.ref.sql} VALUES (1, 'n', 1)")


def listed(stage: Stage, *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    ended, out, err = stage.run("tables", "--json", *arguments)
    assert (ended, err) == (code, "")
    return {each["table"]: each for each in json.loads(out)["tables"]}


@pytest.fixture(params=["files", pytest.param("spark", marks=pytest.mark.soak)])
def told_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who tells of the Delta tables: their files, or Spark, as where these do not."""
    if request.param == "spark":
        monkeypatch.setattr(facts, "snapshot_in_files", lambda *arguments: None)
    else:
        monkeypatch.setattr(spark_lakes, "acquire", None)  # Spark does not start
    told: str = request.param
    return told


def test_all_of_a_table_is_told_of_one_version(
    stage: Stage, told_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = stage.table()
    orders.table(COLUMNS)
    merge(orders, 1)
    merges = [2]
    notes = "notes_in_files" if told_by == "files" else "last_note"
    real = getattr(facts, notes)

    def merged_meanwhile(*arguments: Any) -> Any:
        for number in merges:
            merges.remove(number)
            merge(orders, number)
        return real(*arguments)

    monkeypatch.setattr(facts, notes, merged_meanwhile)
    [told] = listed(stage).values()
    version = 1 if told_by == "files" else 2  # by Spark it is looked again
    assert [told[key] for key in ("rows", "files", "version")] == [version] * 3
    assert told["merged_source_time_ms"] == MILLISECONDS


def test_rows_sizes_times_and_offsets_with_what_waits(stage: Stage, told_by: str) -> None:
    orders = stage.table()
    orders.table(COLUMNS)
    orders.marks = Marks({("cdc", 0): {-1: (41, 0)}})
    orders.put(row(1))
    merge(orders, 1)
    orders.spark.sql(f"DELETE FROM {orders.ref.sql} WHERE id = 7")
    orders.marks = Marks({("cdc", 0): {3: (42, 0), 5: (44, 1)}, ("cdc", 1): {-1: (9, 0)}})
    orders.put(row(2), row(3, source_time=SECOND.replace(second=9)))
    orders.put()
    [told] = listed(stage).values()
    assert told["bytes"] > 100
    assert told["waiting_bytes"] == orders.log.segments[1].bytes
    del told["bytes"], told["waiting_bytes"]
    assert told == {
        "table": "shop.orders",
        "handler": "spark",
        "mode": "replica",
        "place": orders.path,
        "rows": 1,
        "files": 1,
        "version": 1,
        "merged_source_time_ms": MILLISECONDS,
        "waiting_segments": 1,
        "waiting_rows": 2,
        "waiting_statements": 0,
        "source_time_ms": MILLISECONDS + 8000,
        "view_source_time_ms": MILLISECONDS + 8000,
        "offsets": {"cdc": {"0": 44, "1": 9}},
        "problems": [],
        "unread": False,
    }
    code, out, _ = stage.run("tables")
    assert code == 0
    for shown in (
        "shop.orders",
        "2 rows, ",
        "2026-11-21 08:00:01",
        "2026-11-21 08:00:09",
        "cdc[0] 44",
        orders.path,
    ):
        assert shown in out


def test_what_waits_behind_a_statement_is_told_and_until_where_views_reach(stage: Stage) -> None:
    orders = stage.table()
    orders.table(COLUMNS)
    orders.put(row(1))
    rows = log_schema(ORDERS, mode="replica", prefix="_")
    statement = Statement(
        "ddl", "ALTER TABLE orders ...", 0, "cdc", 0, 17, 0, ("cdc",), ("id",), ("id",), columns_of(rows)
    )
    orders.log.append(rows.empty_table(), orders.marks, key=["id"], statement=statement)
    orders.put(row(2, source_time=SECOND.replace(second=9)))
    [told] = listed(stage).values()
    assert (told["waiting_rows"], told["waiting_statements"]) == (2, 1)
    assert (told["source_time_ms"], told["view_source_time_ms"]) == (MILLISECONDS + 8000, MILLISECONDS)
    assert told["problems"] == [
        "views end before cdc[0] offset 17, which is not applied yet: ALTER TABLE orders ..."
    ]
    assert "2 rows, " in (out := stage.run("tables")[1])
    assert ", 1 statement" in out


def test_tables_are_found_without_a_log_and_logs_without_a_table(stage: Stage) -> None:
    """A renamed table goes on without a log until its next change; its old name's log stays."""
    stage.table("renamed to: this").table(COLUMNS, "(1, 'a', 1)")
    stage.table("dropped").put()
    stage.table("new").put(row(1))
    stage.table("elsewhere", mode="history").put({"op": "insert", "id": 1})
    told = listed(stage)
    assert {name: (each["rows"], each["waiting_rows"]) for name, each in told.items()} == {
        "shop.renamed to: this": (1, 0), "shop.dropped": (None, 0), "shop.new": (None, 1),
    }  # fmt: skip
    assert "dropped or renamed" in told["shop.dropped"]["problems"][0]
    assert listed(stage, "shop.n*").keys() == {"shop.new"}


def test_tables_of_others_are_told_without_a_spark(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no note of binlane's, and their log may not count rows."""

    def none(*arguments: object) -> None:
        raise JavaError("no Java here")

    monkeypatch.setattr(spark_lakes, "acquire", none)
    monkeypatch.setattr("handlers.spark.delta.commits.commit_notes._MOST", 0)  # as if theirs were too many
    orders = stage.table()
    rows = pa.table({"id": [1, 2], "name": ["a", "b"], "price": pa.array([1, 2], pa.int32())})
    deltalake.write_deltalake(orders.path, rows, partition_by="price")
    commit = Path(orders.path, "_delta_log", f"{0:020d}.json")
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    orders.put(row(3))
    [told] = listed(stage).values()
    assert [told[name] for name in ("rows", "files", "waiting_rows", "problems")] == [2, 2, 1, []]


def test_a_table_whose_first_commit_is_under_way_is_told_without_a_spark(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_lakes, "acquire", None)  # Spark does not start
    orders, without_log = stage.table(), stage.folder / "lake/shop/items"
    orders.put(row(1))
    for path in (Path(orders.path), without_log):
        (path / "_delta_log/_staged_commits").mkdir(parents=True)
    told = listed(stage)
    assert told.keys() == {"shop.orders"}
    assert [told["shop.orders"][name] for name in ("rows", "waiting_rows", "unread")] == [None, 1, False]
    code, out, _ = stage.run("tables", "--views")
    assert (code, "shop_orders" in out) == (0, True)


def test_a_changelog_of_parquet_files_is_its_log(stage: Stage) -> None:
    handler = {"type": "spark", "mode": "changelog", "format": "parquet", "path": "logs/{database}-{table}"}
    stage.configure([{"match": "shop.*", "handlers": [handler]}])
    log = stage.table(mode="changelog")
    log.put({**row(7), "topic": "cdc", "partition": 0, "offset": 7, "index": 0})
    (stage.folder / "logs").mkdir()
    Path(log.log_folder).rename(stage.folder / "logs/shop-orders")
    [told] = listed(stage).values()
    assert (told["table"], told["rows"], told["files"], told["waiting_rows"]) == ("shop.orders", 1, 1, 0)
    assert told["source_time_ms"] == MILLISECONDS


def test_views_are_printed_as_statements_that_work(stage: Stage) -> None:
    orders = stage.table()
    orders.put(row(1))
    without_key = shape((), **{field.name: field.type for field in ORDERS.schema})
    stage.table("tags").put({"op": "insert", "id": 1}, of=without_key)
    code, out, err = stage.run("tables", "--views")
    assert (code, err) == (0, "")
    assert "-- shop.tags\n-- " in out
    statement = out[out.index("CREATE OR REPLACE VIEW") : out.index(";")]
    orders.spark.sql(statement.replace("VIEW", "TEMPORARY VIEW", 1))
    orders.put(row(2))
    assert orders.rows("shop_orders", "id") == [(1,), (2,)]


def test_each_view_that_is_printed_has_its_own_name(stage: Stage) -> None:
    of_changes = {"type": "spark", "name": "b", "mode": "changelog", "path": "lake/{database}/{table}_c"}
    rule = {"match": "*", "handlers": [{"type": "spark", "name": "a", "mode": "replica"}, of_changes]}
    stage.configure([rule])
    stage.table().put(row(1))
    changes = stage.table("orders_c", mode="changelog")
    changes.owner["table"] = "orders"
    changes.put({"op": "insert", "topic": "cdc", "partition": 0, "offset": 1, "index": 0, "id": 1})
    for name in ("items", "Items"):
        stage.table(name).put(row(1))
    code, out, _ = stage.run("tables", "--views")
    assert code == 0
    names = re.findall("VIEW `(.+)` AS", out)
    assert names == ["shop_Items_replica", "shop_orders_replica", "shop_orders_changelog"]
    assert "-- shop.items\n-- no view: one above has the name shop_items_replica\n" in out


def test_what_cannot_be_read_is_told_and_the_others_are_listed(stage: Stage) -> None:
    stage.table("good").put(row(1))
    broken = stage.table("broken")
    broken.put(row(1))
    Path(broken.log_folder, f"{1:020d}.parquet").write_bytes(b"PAR1 no more")
    told = listed(stage, code=1)
    assert (told["shop.good"]["waiting_rows"], told["shop.good"]["unread"]) == (1, False)
    assert told["shop.broken"]["unread"] is True
    assert "not a whole Parquet file" in told["shop.broken"]["problems"][0]


def test_a_damaged_table_is_one_that_cannot_be_read(stage: Stage) -> None:
    good, bad = (stage.table(name) for name in ("good", "bad"))
    for table in (good, bad):
        table.table(COLUMNS, "(1, 'a', 1)")
        table.put(row(1))
    commit = Path(bad.path, "_delta_log", f"{0:020d}.json")
    commit.write_bytes(commit.read_bytes().replace(b"part-", b"p\xffrt-"))
    told = listed(stage, code=1)
    assert (told["shop.good"]["rows"], told["shop.good"]["unread"]) == (1, False)
    assert told["shop.bad"]["unread"] is True


def test_a_spark_that_does_not_start_is_tried_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        stage.table(f"t{number}").table(COLUMNS, "(1, 'a', 1)")
    tried: list[object] = []

    def none(*arguments: object) -> None:
        tried.append(arguments)
        raise JavaError("no Java here")

    monkeypatch.setattr(facts, "snapshot_in_files", lambda *arguments: None)
    monkeypatch.setattr(spark_lakes, "acquire", none)
    assert stage.run("tables") == (1, "", "binlane tables: no Java here\n")
    assert len(tried) == 1


def test_folders_that_are_another_file_systems_are_told_when_spark_is_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.table().table(COLUMNS, "(1, 'a', 1)")
    monkeypatch.setattr(facts, "snapshot_in_files", lambda *arguments: None)
    monkeypatch.setattr(spark_lakes, "default_scheme", lambda spark: "hdfs")
    code, _, err = stage.run("tables")
    assert (code, "Spark's fs.defaultFS is hdfs" in err) == (1, True)


def test_a_lake_without_tables_is_no_fault(stage: Stage) -> None:
    assert stage.run("tables")[:2] == (0, "No tables yet. Those of Iceberg are listed by their catalog.\n")
    assert stage.run("tables", "shop.nome")[1].startswith("No such tables yet.")
