"""What was received is kept, whatever stops, and each change counts once, however it comes again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest
from integration.process import eventually
from spark_lake import Lake, MakeLake, change

from handlers import TargetUnavailable
from handlers.rows import shard_of


def test_what_waited_when_a_worker_was_killed_is_merged_without_a_new_batch(make_lake: MakeLake) -> None:
    lake = make_lake()
    for offset in range(3):
        lake.take(change(offset, {"id": offset, "name": "a"}))
    lake.crash()
    eventually(lambda: lake.status().get("waiting_rows") == 3, within=60)
    assert lake.view() == [(0, "a"), (1, "a"), (2, "a")]
    lake.options["merge"] = {**lake.options["merge"], "max_age": "0s"}
    lake.crash()
    eventually(lambda: lake.status().get("merged_source_time_ms"), within=120)
    assert lake.rows() == [(0, "a"), (1, "a"), (2, "a")]


def test_the_first_batch_after_a_kill_waits_for_no_merge_and_the_table_is_looked_at_before_the_next(
    make_lake: MakeLake,
) -> None:
    lake = make_lake()
    lake.take(change(0, {"id": 0, "name": "a"}))
    lake.merge()
    lake.take(change(1, {"id": 1, "name": "b"}))
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql("ALTER TABLE {t} DROP COLUMN name")
    lake.crash()
    lake.take(change(2, {"id": 2, "name": "c"}))
    assert lake.status()["waiting_rows"] == 2
    lake.merge()
    assert lake.rows() == [(0, None), (1, "b"), (2, "c")]


@pytest.mark.parametrize(
    "mode", ["replica", *(pytest.param(each, marks=pytest.mark.soak) for each in ("history", "changelog"))]
)
def test_what_comes_again_cut_otherwise_is_passed_over(make_lake: MakeLake, mode: str) -> None:
    lake = make_lake(mode=mode)
    changes = [
        change(offset, {"id": offset % 3, "name": f"n{offset}"}, op="insert" if offset < 3 else "update")
        for offset in range(12)
    ]
    lake.take(*changes[:5])
    lake.crash()
    lake.take(*changes[2:7])
    lake.merge()
    lake.take(*changes[:4])
    lake.crash()
    lake.take(*changes[:9])
    lake.take(*changes[6:])
    lake.merge()
    newest = [(0, "n9"), (1, "n10"), (2, "n11")]
    if mode == "replica":
        assert lake.rows() == newest
    elif mode == "history":
        assert sorted(row[0] for row in lake.rows("_offset")) == list(range(12))
        found = lake.spark.read.format("delta").load(str(lake.folder / "lake/shop/orders")).where("_current")
        assert sorted(map(tuple, found.select("id", "name").collect())) == newest
    else:
        assert sorted(row[0] for row in lake.rows("_offset")) == list(range(12))


def test_row_shards_of_a_replica_are_taken_side_by_side_and_once_each(lake: Lake) -> None:
    rounds = [
        [change(100 * n + id, {"id": id, "name": f"r{n}"}, op="update") for id in range(8)] for n in (0, 1, 2)
    ]

    def take(n: int, id: int) -> None:
        lake.take(rounds[n][id], shard=shard_of(rounds[n][id]))

    with ThreadPoolExecutor(4) as threads:
        for n in (0, 1):
            list(threads.map(take, [n] * 8, range(8)))
    lake.crash()
    # One shard is further than the others: what comes again of it is old, the rest is new.
    take(2, 3)
    for id in range(8):
        take(1, id)
        take(2, id)
    lake.take(change(400, None, None, op="ddl", sql="ALTER TABLE orders ADD paid int DEFAULT 1"))
    take(2, 5)
    lake.sink().merge()
    assert lake.rows() == [(id, "r2", 1) for id in range(8)]


def test_threads_write_different_tables_at_once(lake: Lake) -> None:
    def write(number: int) -> None:
        for offset in range(4):
            lake.take(change(offset, {"id": offset, "name": f"t{number}"}), table=f"shop.t{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    lake.merge()
    for number in range(4):
        assert lake.rows(path=f"lake/shop/t{number}") == [(offset, f"t{number}") for offset in range(4)]


def test_status_tells_what_waits_and_what_is_in_the_tables(lake: Lake) -> None:
    lake.take(change(0, {"id": 1, "name": "a"}), change(5, {"id": 2, "name": "b"}))
    found = lake.status()
    assert (found["table"], found["waiting_rows"], found["error"]) == ("shop.orders", 2, None)
    assert found["waiting_bytes"] > 0
    assert 0 <= found["waiting_seconds"] < 60
    assert found["merged_source_time_ms"] is None
    [sink] = lake.handler._open._tables.known()  # type: ignore[union-attr]
    sink.merge()
    assert lake.status() == {
        "table": "shop.orders",
        "waiting_rows": 0,
        "waiting_bytes": 0,
        "waiting_seconds": 0.0,
        "views_wait": False,
        "merged_source_time_ms": 1_790_000_000_128,
        "error": None,
    }
    whole = lake.handler.status()
    assert whole is not None
    assert whole["spark"]["master"] == "local[2]"
    assert whole["spark"]["version"].startswith("4.")


def test_merged_segments_are_removed_but_for_the_last(make_lake: MakeLake) -> None:
    lake = make_lake(merge={"keep": "0s"})
    for offset in range(3):
        lake.take(change(offset, {"id": offset, "name": "a"}))
    log = lake.folder / "lake/_binlane/shop/orders/pending"
    [sink] = lake.handler._open._tables.known()  # type: ignore[union-attr]
    assert len(list(log.glob("*.parquet"))) == 3
    sink.merge()
    eventually(lambda: [each.name for each in log.glob("*.parquet")] == [f"{3:020d}.parquet"], within=30)
    assert lake.view() == lake.rows() == [(0, "a"), (1, "a"), (2, "a")]


def test_more_than_may_wait_is_merged_before_more_is_taken(make_lake: MakeLake) -> None:
    lake = make_lake(merge={"max_waiting": "1KiB"})
    lake.take(change(0, {"id": 0, "name": "a"}))
    lake.take(change(1, {"id": 1, "name": "a"}))
    assert lake.status()["waiting_bytes"] > 1024
    lake.take(change(2, {"id": 2, "name": "a"}))
    assert (lake.rows(), lake.status()["waiting_rows"]) == ([(0, "a"), (1, "a")], 1)


@pytest.mark.soak
def test_a_catalogs_table_is_kept_by_name(make_lake: MakeLake) -> None:
    lake = make_lake(table="engine_{database}.{table}")
    lake.take(change(0, {"id": 1, "name": "a"}))
    lake.merge()
    lake.take(change(1, {"id": 1, "name": "b"}, op="update"))
    lake.crash()
    lake.take(change(0, {"id": 1, "name": "a"}), change(1, {"id": 1, "name": "b"}, op="update"))
    lake.merge()
    try:
        assert [tuple(row) for row in lake.spark.table("engine_shop.orders").collect()] == [(1, "b")]
    finally:
        lake.spark.sql("DROP TABLE engine_shop.orders")


def test_a_log_that_is_not_whole_stops_its_table_with_the_way_out(lake: Lake) -> None:
    for offset in range(3):
        lake.take(change(offset, {"id": offset, "name": "a"}))
    log = lake.folder / "lake/_binlane/shop/orders/pending"
    second = log / f"{2:020d}.parquet"
    rows = second.read_bytes()
    assert pq.read_table(second).num_rows == 1
    second.unlink()
    lake.crash()
    with pytest.raises(TargetUnavailable, match=r"offset 3 on: .*is missing.* restore it"):
        lake.take(change(3, {"id": 3, "name": "a"}))
    second.write_bytes(rows)
    lake.take(change(3, {"id": 3, "name": "a"}))
    assert lake.view() == [(id, "a") for id in range(4)]
