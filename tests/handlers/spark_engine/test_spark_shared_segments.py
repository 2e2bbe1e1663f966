"""Batches of many tables in packs: they are merged, shown and counted as those with segments of their own."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from spark_lake import Lake, MakeLake, change

from handlers import Change
from handlers.failures import AskAgain
from handlers.spark.delta.commits.exactly_once import settings
from handlers.spark.locations import Locations
from handlers.spark.log.store_choice import AnySpark
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.read.facts import facts_of
from handlers.spark.read.log_heads import found_tables

SHARED = {"shared_segments": "10ms"}


def row(offset: int, key: int | None = None, name: str = "a") -> Change:
    return change(offset, {"id": offset if key is None else key, "name": name})


def take(lake: Lake, *changes: Change, table: str = "shop.orders") -> None:
    """As a worker does: the batch is handed over until it is done."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            lake.take(*changes, table=table)
        except AskAgain as later:
            time.sleep(later.seconds)
        else:
            return
    raise AssertionError("it is not done")


def segments(lake: Lake, table: str = "orders") -> list[Path]:
    return sorted((lake.folder / f"lake/_binlane/shop/{table}/pending").glob("*.parquet"))


def packs(lake: Lake) -> list[Path]:
    return sorted((lake.folder / "lake/_binlane/_shared").glob("*/*.pack"))


def test_tables_share_packs_after_their_first_batch_and_each_gets_its_own_rows(make_lake: MakeLake) -> None:
    lake = make_lake(**SHARED)
    for table in ("shop.orders", "shop.items"):
        take(lake, row(0), table=table)
    for offset in range(1, 4):
        take(lake, row(2 * offset, key=offset), row(2 * offset + 1, key=0, name=f"at {offset}"))
        take(lake, row(offset), table="shop.items")
    assert [len(segments(lake, table)) for table in ("orders", "items")] == [1, 1]
    assert packs(lake)
    assert lake.status()["waiting_rows"] == 7
    lake.merge()
    assert lake.rows() == [(0, "at 3"), (1, "a"), (2, "a"), (3, "a")]
    assert lake.rows("id", "lake/shop/items") == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("mode", ["replica", pytest.param("changelog", marks=pytest.mark.soak)])
def test_current_shows_what_is_in_packs_before_and_behind_the_first_merge(
    make_lake: MakeLake, mode: str
) -> None:
    lake = make_lake(mode=mode, **SHARED)
    take(lake, row(0))
    take(lake, row(1))
    assert lake.view("id") == [(0,), (1,)]
    lake.sink().merge()
    take(lake, row(2))
    take(lake, row(3, key=2, name="b"))
    expected = (
        [(0, "a"), (1, "a"), (2, "b")] if mode == "replica" else [(0, "a"), (1, "a"), (2, "a"), (2, "b")]
    )
    assert lake.view("id, name") == expected
    assert len(segments(lake)) <= 2


@pytest.mark.parametrize("mode", ["replica", pytest.param("changelog", marks=pytest.mark.soak)])
def test_a_datetime_in_a_pack_is_no_moment_of_the_reader_s_zone(make_lake: MakeLake, mode: str) -> None:
    lake, types = make_lake(mode=mode, **SHARED), {"id": "int", "at": "datetime"}
    skipped = datetime(2026, 3, 29, 2, 30)  # by the clocks of Berlin
    for key in range(2):  # the second is in a pack
        take(lake, change(key, {"id": key, "at": skipped}, types))
    assert packs(lake)
    with settings(lake.spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        assert lake.view("id, at, typeof(at)") == [(key, skipped, "timestamp_ntz") for key in range(2)]


def test_what_a_killed_worker_left_in_packs_is_found_and_merged(make_lake: MakeLake) -> None:
    lake = make_lake(**SHARED)
    for offset in range(3):
        take(lake, row(offset))
    lake.crash()
    take(lake, row(2), row(3))  # of which one was applied
    lake.merge()
    assert lake.rows("id") == [(0,), (1,), (2,), (3,)]


def test_a_worker_that_does_not_share_goes_on_behind_packs(make_lake: MakeLake) -> None:
    lake = make_lake(**SHARED)
    for offset in range(3):
        take(lake, row(offset))
    lake.options["shared_segments"] = "0s"
    lake.crash()
    lake.take(row(3))
    lake.merge()
    assert lake.rows("id") == [(0,), (1,), (2,), (3,)]


def test_a_statement_comes_behind_the_rows_in_packs(make_lake: MakeLake) -> None:
    lake = make_lake(**SHARED)
    for offset in range(3):
        take(lake, row(offset))
    take(lake, change(3, None, None, op="truncate"))
    take(lake, row(4))
    lake.merge()
    assert lake.rows("id") == [(4,)]


def test_binlane_tables_counts_what_is_in_packs(make_lake: MakeLake) -> None:
    lake = make_lake(**SHARED)
    for offset in range(3):
        take(lake, row(offset))
    world: Any = lake.handler._open.world  # type: ignore[union-attr]
    options = SparkOptions.model_validate({"mode": "replica"})
    locations = Locations(options, SparkSection.model_validate({}), lake.folder)
    [found] = found_tables(world.files, locations, options)
    facts = facts_of(AnySpark(lake.spark), world.files, found, "spark")
    assert (facts.waiting_rows, facts.waiting_segments, facts.offsets) == (3, 3, {"cdc": {0: 2}})
    assert facts.source_time_ms == row(2).source_time_ms


def test_histories_and_tables_without_a_key_keep_segments_of_their_own(make_lake: MakeLake) -> None:
    lake = make_lake(mode="history", **SHARED)
    take(lake, row(0))
    take(lake, row(1))
    assert (len(segments(lake)), packs(lake)) == (2, [])
