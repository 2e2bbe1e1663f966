"""A table that does not go on where its log begins, or a log that ends before its table, is refused."""

from __future__ import annotations

import shutil
import time
from typing import Any

import pytest
from spark_lake import Lake, change

from handlers import Change, TargetUnavailable
from handlers.spark.delta.commits.commit_notes import LostCommit
from handlers.spark.delta.commits.held_segments import held_by
from handlers.spark.engine.table.failures import SparkFailure
from handlers.spark.table_ref import TableRef


def row(offset: int) -> Change:
    return change(offset, {"id": offset, "name": "a"})


def merged(lake: Lake, *offsets: int) -> None:
    """One segment each, brought in and removed but for the last."""
    for offset in offsets:
        lake.take(row(offset))
    lake.sink().merge()
    lake.sink().merges.tidy(time.monotonic() + 3600)
    lake.sink().merges.tidy(time.monotonic() + 7200)


def test_a_table_that_was_restored_or_removed_under_its_log_is_refused(lake: Lake) -> None:
    table = lake.folder / "lake/shop/orders"
    merged(lake, 0, 1)
    shutil.copytree(table, lake.folder / "earlier")
    merged(lake, 2, 3, 4)
    shutil.move(table, lake.folder / "newest")
    lake.take(row(5))
    with pytest.raises(SparkFailure, match=r"had segment 5 of its log, and now has none: .*or remove it"):
        lake.sink().merge()
    lake.crash()
    with pytest.raises(TargetUnavailable, match=r"had segment 5 of its log, and now has none"):
        lake.take(row(6))
    shutil.move(lake.folder / "earlier", table)
    with pytest.raises(TargetUnavailable, match=r"had segment 5 of its log, and now has 2:"):
        lake.take(row(6))
    shutil.rmtree(table)
    shutil.move(lake.folder / "newest", table)
    lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    lake.take(row(6))
    lake.sink().merge()
    assert lake.rows("id") == [(each,) for each in range(7)]
    shutil.rmtree(lake.folder / "lake/_binlane/shop")
    lake.crash()
    with pytest.raises(TargetUnavailable, match=r"has segment 7 of another log than .*: workers with two"):
        lake.take(row(7))


@pytest.mark.soak
def test_rows_that_a_restore_took_back_are_missed(lake: Lake) -> None:
    """Delta's transaction identifiers outlive it."""
    merged(lake, 0, 1)
    merged(lake, 2)
    lake.sql("RESTORE {t} TO VERSION AS OF 0")
    told = r"restored to version 0 by its version 2, but version 1 had a newer part of its log, .* AS OF 1\)"
    lake.take(row(3))
    with pytest.raises(SparkFailure, match=told):
        lake.sink().merge()
    lake.crash()
    with pytest.raises(TargetUnavailable, match=told):
        lake.take(row(4))
    lake.sql("RESTORE {t} TO VERSION AS OF 1")
    lake.take(row(4))
    lake.sink().merge()
    assert lake.rows("id") == [(each,) for each in range(5)]


def go_on(lake: Lake) -> None:
    lake.take(change(10, {"id": 2, "name": "a"}))
    lake.sink().merge()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("TRUNCATE TABLE orders", [(2, "a")]),
        pytest.param(
            "ALTER TABLE orders ADD COLUMN more int DEFAULT 5",
            [(0, "a", 5), (1, "a", 5), (2, "a", None)],
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_statement_that_a_restore_took_back_is_missed(lake: Lake, sql: str, rows: list[Any]) -> None:
    merged(lake, 0, 1)
    lake.take(change(9, None, None, op="truncate" if "TRUNCATE" in sql else "ddl", sql=sql))
    lake.sink().merge()
    last = lake.sql("DESCRIBE HISTORY {t} LIMIT 1").collect()[0].version
    lake.sql("RESTORE {t} TO VERSION AS OF 0")
    told = f"restored to version 0 by its version {last + 1}, but version"
    with pytest.raises((SparkFailure, TargetUnavailable), match=told):
        go_on(lake)
    path = str(lake.folder / "lake/shop/orders")
    for place in (path, None):  # by its files, and by SQL
        ref = TableRef(f"delta.`{path}`", place, lake.sink().log_folder, "binlane:shop.orders")
        with pytest.raises(LostCommit, match="restored to version 0"):
            held_by(lake.spark, ref)
    lake.sql(f"RESTORE {{t}} TO VERSION AS OF {last}")
    go_on(lake)
    assert lake.rows() == rows


def test_a_table_that_was_dropped_by_ddl_is_followed_by_the_next(lake: Lake) -> None:
    merged(lake, 0, 1)
    lake.take(change(2, None, None, op="ddl", sql="DROP TABLE orders"))
    merged(lake, 3)
    assert lake.rows("id") == [(3,)]
    lake.take(change(4, None, None, op="ddl", sql="RENAME TABLE orders TO older"))
    lake.crash()
    merged(lake, 5, 6)
    assert lake.rows("id") == [(5,), (6,)]
    assert lake.rows("id", path="lake/shop/older") == [(3,)]
