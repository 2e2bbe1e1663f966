"""A view shows a table as of its newest segment, whichever segments the table holds already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from view_lab import ORDERS, HandMade, shape

from handlers.spark.view import NothingToSee, folder_sql, view_sql

Lake = Callable[..., HandMade]

COLUMNS = "id BIGINT, name STRING, price INT"


def row(
    id: int, name: str | None = None, price: int | None = None, op: str = "upsert", **more: object
) -> dict[str, object]:
    return {"op": op, "id": id, "name": name, "price": price, **more}


def test_the_last_change_of_each_key_wins_over_the_table(lake: Lake) -> None:
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)", "(2, 'two', 2)", "(3, 'three', 3)")
    orders.put(row(2, "zwei", 22), row(4, "vier", 4, op="insert"))
    orders.put(row(2, "deux", 222), row(3, op="delete"))
    assert orders.shown() == [(1, "one", 1), (2, "deux", 222), (4, "vier", 4)]


def test_segments_that_the_table_holds_already_change_nothing(lake: Lake) -> None:
    orders = lake()
    orders.table(COLUMNS, "(2, 'deux', 222)", "(4, 'quatre', 4)")
    orders.put(row(2, "zwei", 22), row(3, op="delete"))
    orders.put(row(2, "deux", 222), row(4, "vier", 4))
    orders.put(row(4, "quatre", 4), row(5, op="delete"))
    assert orders.shown() == [(2, "deux", 222), (4, "quatre", 4)]


def test_a_key_that_was_deleted_and_came_again_is_there_once(lake: Lake) -> None:
    orders = lake()
    orders.table(COLUMNS, "(1, 'old', 1)")
    orders.put(row(1, op="delete"))
    orders.put(row(1, "new", 2, op="insert"))
    assert orders.shown() == [(1, "new", 2)]


def test_a_log_without_rows_shows_the_table(lake: Lake) -> None:
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)")
    orders.put()
    assert orders.shown() == [(1, "one", 1)]


def test_before_the_first_commit_the_segments_are_the_table(lake: Lake) -> None:
    orders = lake()
    orders.put(row(1, "one", 1), row(2, "two", 2))
    orders.put(row(1, op="delete"))
    assert orders.shown() == [(2, "two", 2)]


def test_ten_segments_and_more_are_told_apart_by_number(lake: Lake) -> None:
    orders = lake()
    orders.table(COLUMNS)
    for price in range(1, 12):
        orders.put(row(1, "n", price))
    assert orders.shown() == [(1, "n", 11)]


def test_a_row_without_all_columns_shows_once_it_is_merged(lake: Lake) -> None:
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)", "(2, 'two', 2)", "(3, 'three', 3)")
    orders.put(row(1, "uno", 11), row(3, "tre", 33))
    orders.put(
        row(1, price=111, absent=["name"]),
        row(2, price=22, absent=["name"]),
        row(3, op="delete", absent=["name", "price"]),
        partial=True,
    )
    # The sink merges all before it puts such a segment: the table holds the first one.
    orders.spark.sql(f"UPDATE {orders.ref.sql} SET name = 'uno', price = 11 WHERE id = 1")
    assert orders.shown() == [(1, "uno", 11), (2, "two", 2)]
    orders.spark.sql(f"UPDATE {orders.ref.sql} SET price = 111 WHERE id = 1")
    orders.put(row(2, "dos", 222))
    assert orders.shown() == [(1, "uno", 111), (2, "dos", 222)]


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


@pytest.mark.parametrize("prefix", ["_", "binlane "])
def test_names_of_any_kind(lake: Lake, prefix: str) -> None:
    odd = shape(("the key",), **{"the key": pa.int64(), "a`b": pa.string()})
    orders = lake("shop/a %20 {b}", prefix=prefix)
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
    lake: Lake, mode: str, key: tuple[str, ...]
) -> None:
    of = shape(key, id=pa.int64())
    orders = lake(mode=mode)
    orders.put({"op": "insert", "id": 2}, of=of)
    with pytest.raises(NothingToSee, match="no rows yet"):
        orders.view(of)
    orders.table("id BIGINT", "(1)")
    assert orders.shown(of) == [(1,)]


def test_a_source_column_with_a_name_that_the_view_needs_is_told(lake: Lake) -> None:
    orders = lake()
    with pytest.raises(NothingToSee, match="column '_Segment'"):
        orders.view(shape(id=pa.int64(), _Segment=pa.string()))


@pytest.mark.parametrize("kind", ["VIEW", "TEMPORARY VIEW"])
def test_a_view_made_once_shows_what_comes_later(lake: Lake, kind: str) -> None:
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)")
    orders.put(row(2, "two", 2))
    orders.spark.sql(f"CREATE OR REPLACE {kind} orders_now AS {orders.view()}")
    orders.put(row(1, op="delete"))
    assert orders.rows("orders_now") == [(2, "two", 2)]
    orders.spark.sql(f"DELETE FROM {orders.ref.sql}")
    orders.spark.sql(f"INSERT INTO {orders.ref.sql} VALUES (3, 'three', 3)")
    orders.log.remove(1)
    assert orders.rows("orders_now") == [(3, "three", 3)]
    orders.spark.sql("DROP VIEW orders_now")


def test_the_segments_are_listed_once_and_after_the_table_was_looked_at(lake: Lake) -> None:
    """Two lists would be of two moments, and a list older than the table could miss what it lacks."""
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)")
    orders.put(row(1, "uno", 11))
    before = orders.spark.sql(f"SELECT * FROM ({orders.view()})")
    plan = before._jdf.queryExecution().analyzed().toString()
    assert plan.count("Relation [_op") == 1, plan
    orders.put(row(1, "eins", 111))
    assert [tuple(row) for row in before.collect()] == [(1, "uno", 11)]
    assert orders.shown(ORDERS) == [(1, "eins", 111)]


def test_the_view_needs_no_place_but_the_log_and_the_table(lake: Lake, tmp_path: Path) -> None:
    orders = lake()
    orders.put(row(1, "one", 1))
    assert orders.shown() == [(1, "one", 1)]
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {"_binlane"}
