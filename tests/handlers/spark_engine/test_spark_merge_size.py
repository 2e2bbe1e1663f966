"""A merge is so large at most, and smaller after one that failed or that the worker did not survive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark_lake import MakeLake, change

from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.modes import merge_by_spark
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.engine.table.failures import SparkFailure
from handlers.spark.engine.table.waiting import FOLDER, MergeSize
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import SparkOptions

MIB = 2**20


def worker(folder: Path) -> MergeSize:
    """Of one that starts."""
    return MergeSize(LocalFiles(), str(folder), 128 * MIB, table="shop.orders")


def begun(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in Path(folder, FOLDER).iterdir())


def fail(size: MergeSize, tried: int, error: Exception) -> None:
    with pytest.raises(type(error)), size.attempt(tried):
        raise error


def test_a_merge_that_failed_is_tried_with_half_of_it_until_nothing_is_left(tmp_path: Path) -> None:
    size = worker(tmp_path)
    assert size.limit() == 128 * MIB
    for tried, left in ((100, 50), (50, 25), (20, 10), (10, 5), (5, 4), (4, 4)):
        fail(size, tried * MIB, RuntimeError("out of memory"))
        assert size.limit() == left * MIB
    with size.attempt(4 * MIB):
        pass
    assert size.limit() == 4 * MIB
    size.done()
    assert size.limit() == 128 * MIB
    assert begun(tmp_path) == []


def test_a_worker_begins_with_half_of_the_merge_that_the_one_before_did_not_survive(tmp_path: Path) -> None:
    for tried, left in ((100, 50), (50, 25), (5, 4)):
        killed = worker(tmp_path)
        killed.limit()
        killed.attempt(tried * MIB).__enter__()
        assert worker(tmp_path).limit() == left * MIB
    survivor = worker(tmp_path)
    survivor.limit()
    with survivor.attempt(2 * MIB):
        pass
    assert begun(tmp_path) == [5 * MIB, 50 * MIB, 100 * MIB]
    survivor.done()
    assert begun(tmp_path) == []
    assert worker(tmp_path).limit() == 128 * MIB


def test_another_writers_commit_makes_no_merge_smaller_and_a_small_one_is_not_written_down(
    tmp_path: Path,
) -> None:
    size = worker(tmp_path)
    fail(size, 3 * MIB, MergeConflict("another worker was faster"))
    assert size.limit() == 128 * MIB
    assert not Path(tmp_path, FOLDER).exists()


def test_a_backlog_is_merged_in_commits_of_whole_segments_and_goes_on_after_a_fault(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(mode="changelog", merge={"engine": "spark", "max_bytes": "1KiB"})
    for offset in range(4):
        lake.take(change(offset, {"id": offset, "name": "a"}))
    brought = []

    def until_the_third(session: Any, what: Bringing, options: SparkOptions) -> None:
        brought.append([segment.number for segment in what.segments])
        if brought == [[1], [2], [3]]:
            raise RuntimeError("out of memory")
        merge_by_spark(session, what, options)

    monkeypatch.setattr("handlers.spark.engine.table.work.merge_by_spark", until_the_third)
    with pytest.raises(SparkFailure, match="out of memory"):
        lake.sink().merge()
    assert (lake.rows("id"), lake.sink().waiting.segments) == ([(0,), (1,)], 2)
    lake.sink().merge()
    assert brought == [[1], [2], [3], [3], [4]]
    assert lake.rows("id") == [(0,), (1,), (2,), (3,)]
