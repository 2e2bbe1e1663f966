"""A view shows a table as of its newest segment, whichever segments the table holds already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from view_lab import COLUMNS, HandMade, row, shape

from handlers.spark.read.view import NothingToSee, folder_sql, view_sql

Lake = Callable[..., HandMade]


@pytest.fixture(scope="module")
def three(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> HandMade:
    """A Delta table of three rows, which no test changes: most only differ in what the log holds."""
    made = HandMade(spark, tmp_path_factory.mktemp("three"))
    made.table(COLUMNS, "(1, 'one', 1)", "(2, 'two', 2)", "(3, 'three', 3)")
    return made


@pytest.fixture
def orders(lake: Lake, three: HandMade) -> HandMade:
    """That table with an empty log of the test's own."""
    orders = lake()
    orders.ref = replace(orders.ref, sql=three.ref.sql, path=three.ref.path)
    return orders


THREE = [(1, "one", 1), (2, "two", 2), (3, "three", 3)]


def test_the_last_change_of_each_key_wins_over_the_table(orders: HandMade) -> None:
    orders.put(row(2, "zwei", 22), row(4, "vier", 4, op="insert"))
    orders.put(row(2, "deux", 222), row(3, op="delete"))
    assert orders.shown() == [(1, "one", 1), (2, "deux", 222), (4, "vier", 4)]


def test_segments_that_the_table_holds_already_change_nothing(orders: HandMade) -> None:
    orders.put(row(2, "zwei", 22), row(4, "vier", 4))
    orders.put(row(2, "two", 2), row(4, op="delete"), row(3, "drei", 33))
    orders.put(row(3, "three", 3), row(5, op="delete"))
    assert orders.shown() == THREE


def test_a_key_that_was_deleted_and_came_again_is_there_once(orders: HandMade) -> None:
    orders.put(row(1, op="delete"))
    orders.put(row(1, "new", 2, op="insert"))
    assert orders.shown() == [(1, "new", 2), *THREE[1:]]


def test_a_log_without_rows_shows_the_table(orders: HandMade) -> None:
    orders.put()
    assert orders.shown() == THREE


def test_before_the_first_commit_the_segments_are_the_table(lake: Lake) -> None:
    orders = lake()
    orders.put(row(1, "one", 1), row(2, "two", 2))
    orders.put(row(1, op="delete"))
    assert orders.shown() == [(2, "two", 2)]


def test_ten_segments_and_more_are_told_apart_by_number(orders: HandMade) -> None:
    for price in range(1, 12):
        orders.put(row(1, "n", price))
    assert orders.shown() == [(1, "n", 11), *THREE[1:]]


def test_a_row_without_all_columns_shows_once_it_is_merged(orders: HandMade) -> None:
    """The table has its other columns, for the sink merges all before such a segment, and then that."""
    orders.put(row(1, "uno", 11), row(2, "dos", 22))
    orders.put(row(1, "one", 1), row(2, "two", 2))
    orders.put(
        row(1, price=111, absent=["name"]),
        row(2, price=222, absent=["name"]),
        row(3, op="delete", absent=["name", "price"]),
        partial=True,
    )
    assert orders.shown() == THREE[:2]
    orders.put(row(2, "deux", 2222))
    assert orders.shown() == [(1, "one", 1), (2, "deux", 2222)]


def test_a_key_of_several_columns(lake: Lake) -> None:
    keyed = shape(("region", "id"), id=pa.int64(), region=pa.string(), name=pa.string())
    orders = lake()
    orders.table("id BIGINT, region STRING, name STRING", "(1, 'n', 'a')", "(1, 's', 'b')")
    orders.put({"op": "upsert", "id": 1, "region": "s", "name": "B"}, of=keyed)
    assert orders.shown(keyed) == [(1, "n", "a"), (1, "s", "B")]


def test_columns_go_by_name_and_those_of_one_side_are_null_on_the_other(lake: Lake) -> None:
    of = shape(NAME=pa.string(), id=pa.int64(), born=pa.timestamp("us"))
    orders = lake()
    orders.table("id BIGINT, dropped STRING, name STRING", "(1, 'kept', 'one')")
    orders.put({"op": "upsert", "id": 2, "NAME": "two"}, of=of)
    assert orders.shown(of, "id, dropped, name, born") == [(1, "kept", "one", None), (2, None, "two", None)]


def test_names_of_any_kind(lake: Lake) -> None:
    odd = shape(("the key",), **{"the key": pa.int64(), "a`b": pa.string()})
    orders = lake("shop/a %20 {b}", prefix="binlane ")
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    orders.table("`the key` BIGINT, `a``b` STRING", properties=mapped)
    orders.put({"op": "upsert", "the key": 1, "a`b": "y"}, of=odd)
    assert orders.shown(odd) == [(1, "y")]


def test_a_changelog_shows_each_change_once_while_segments_are_appended_to_it(lake: Lake) -> None:
    log = lake(mode="changelog")
    for offset in (0, 1, 2):
        log.put(row(offset, op="insert", topic="cdc", partition=0, offset=offset, index=0))
    log.put({**row(3, "b", op="update", topic="cdc", partition=0, offset=3, index=0), "before": {"id": 3}})
    # The second and the third segment were appended already.
    log.spark.sql(
        f"""CREATE TABLE {log.ref.sql} USING delta AS
        SELECT * FROM {folder_sql(log.log_folder)} WHERE id BETWEEN 1 AND 2 UNION ALL
        SELECT 'insert', null, 'cdc', 1, 0, 0, null, null, 9, null, null"""
    )
    assert log.shown(columns="_partition, _offset, id, _before.id") == [
        (0, 0, 0, None), (0, 1, 1, None), (0, 2, 2, None), (0, 3, 3, 3), (1, 0, 9, None),
    ]  # fmt: skip


def test_a_changelog_of_parquet_files_is_its_log_whatever_shapes_it_had(lake: Lake) -> None:
    log = lake(mode="changelog")
    log.put(row(0, "a", 1, op="insert"))
    wider = shape(id=pa.int64(), name=pa.string(), price=pa.int32(), note=pa.string())
    log.put({**row(1, "b", 2, op="insert"), "note": "n"}, of=wider)
    ref = type(log.ref)(folder_sql(log.log_folder), log.log_folder, log.log_folder)
    sql = view_sql(ref, wider, mode="changelog", columns=None)
    assert log.rows(f"({sql})", "id, note") == [(0, None), (1, "n")]


@pytest.mark.parametrize(("mode", "key"), [("history", ("id",)), ("replica", ())])
def test_histories_and_tables_without_a_key_are_shown_as_merged(
    lake: Lake, three: HandMade, mode: str, key: tuple[str, ...]
) -> None:
    of = shape(key, id=pa.int64())
    orders = lake(mode=mode)
    orders.put({"op": "insert", "id": 4}, of=of)
    with pytest.raises(NothingToSee, match="no rows yet"):
        orders.view(of)
    orders.ref = replace(orders.ref, sql=three.ref.sql, path=three.ref.path)
    assert orders.shown(of, "id") == [(1,), (2,), (3,)]


def test_a_source_column_with_a_name_that_the_view_needs_is_told(lake: Lake) -> None:
    orders = lake()
    with pytest.raises(NothingToSee, match="column '_Segment'"):
        orders.view(shape(id=pa.int64(), _Segment=pa.string()))


def test_a_view_made_once_shows_what_comes_later(lake: Lake) -> None:
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)")
    orders.put(row(2, "two", 2))
    views = {"kept": "VIEW", "of_the_session": "TEMPORARY VIEW"}
    for name, kind in views.items():
        orders.spark.sql(f"CREATE OR REPLACE {kind} {name} AS {orders.view()}")
    orders.put(row(1, op="delete"))
    assert [orders.rows(name) for name in views] == [[(2, "two", 2)]] * 2
    orders.spark.sql(f"INSERT OVERWRITE {orders.ref.sql} VALUES (3, 'three', 3)")
    orders.log.remove(1)
    assert [orders.rows(name) for name in views] == [[(3, "three", 3)]] * 2
    orders.spark.sql("DROP VIEW kept")


def test_retired_segments_are_passed_over_and_may_go_while_a_query_runs(orders: HandMade) -> None:
    orders.put(row(1, "uno", 11))
    orders.put(row(2, "dos", 22))
    orders.log.retire(1)
    frame = orders.spark.sql(orders.view())
    orders.log.remove(1)
    assert sorted(map(tuple, frame.collect())) == [THREE[0], (2, "dos", 22), THREE[2]]
    orders.log.retire(2)
    assert orders.rows(f"({orders.view()})") == THREE


def test_the_segments_are_listed_once(orders: HandMade) -> None:
    """Two lists would be of two moments."""
    orders.put(row(1, "uno", 11))
    frame = orders.spark.sql(f"SELECT * FROM ({orders.view()})")
    plan = frame._jdf.queryExecution().analyzed().toString()
    assert plan.count("Relation [_op") == 1, plan
    orders.put(row(1, "eins", 111))
    assert sorted(map(tuple, frame.collect())) == [(1, "uno", 11), *THREE[1:]]
    assert orders.shown() == [(1, "eins", 111), *THREE[1:]]


def test_the_view_needs_no_place_but_the_log_and_the_table(lake: Lake, tmp_path: Path) -> None:
    orders = lake()
    orders.put(row(1, "one", 1))
    assert orders.shown() == [(1, "one", 1)]
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {"_binlane"}
