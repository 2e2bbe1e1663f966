"""What notebooks and jobs of users get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from view_lab import COLUMNS, ORDERS, HandMade, row

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.beside import ToldHeld
from handlers.spark.log.stores.interface import Entry
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import SparkOptions
from handlers.spark.read.current import create_views, current, newest_frame
from handlers.spark.read.view import NothingToSee

Lake = Callable[..., HandMade]


def read(spark: Any, table: object, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(each) for each in current(spark, str(table), **options).collect())


def test_a_table_is_found_by_its_folder_and_its_log_above_it(lake: Lake) -> None:
    orders = lake(prefix="b_")
    orders.put(row(1, "one", 1))
    assert read(orders.spark, orders.path, prefix="b_") == [(1, "one", 1)]
    orders.table(COLUMNS, "(1, 'one', 1)", "(2, 'two', 2)")
    orders.put(row(1, op="delete"))
    assert read(orders.spark, orders.path, prefix="b_") == [(2, "two", 2)]
    with pytest.raises(LookupError, match="which prefix"):
        current(orders.spark, orders.path)


@pytest.mark.soak  # also spark_runtime/test_connect_frames.py
def test_a_frame_stays_of_its_moment_while_the_worker_goes_on(lake: Lake) -> None:
    """Delta alone would show the commit of a later moment under the segments of an earlier one."""
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)", "(2, 'two', 2)")
    orders.put(row(1, "uno", 11))
    frame = current(orders.spark, orders.path)
    orders.put(row(1, "eins", 111), row(2, op="delete"))
    orders.spark.sql(f"DELETE FROM {orders.ref.sql} WHERE id = 2")
    assert sorted(tuple(each) for each in frame.collect()) == [(1, "uno", 11), (2, "two", 2)]
    assert read(orders.spark, orders.path) == [(1, "eins", 111)]


class Busy(LocalFiles):
    """A store beside which a worker goes on, each time that a path with this end is read or listed."""

    def __init__(self, end: str, go_on: Callable[[], None]) -> None:
        self.end = end
        self.go_on = go_on

    def read(self, path: str) -> bytes:
        if path.endswith(self.end):
            self.go_on()
        return super().read(path)

    def list(self, folder: str) -> Sequence[Entry]:
        if folder.endswith(self.end):
            self.go_on()
        return super().list(folder)


class Going:
    """A worker that puts a row, merges all rows and perhaps removes their segments."""

    def __init__(self, table: HandMade, *, removes: bool = False) -> None:
        self.table = table
        self.removes = removes
        self.rows = 0

    def __call__(self) -> None:
        self.rows += 1
        number = self.table.put(row(self.rows, "name", 1))
        note = CommitNote("worker", "spark", number, number, 0, {})
        what = Bringing(self.table.ref, self.table.log.after(number - 1), ORDERS, note)
        assert WithoutSpark(SparkOptions(mode="replica"), LocalFiles()).apply(what) is not None
        if self.removes:
            self.table.put(row(self.rows + 1, "name", 1))
            self.rows += 1
            self.table.log.remove(number)


def test_a_frame_lacks_no_row_though_each_look_is_followed_by_a_commit(lake: Lake) -> None:
    orders = lake()
    going = Going(orders)
    going()
    frame = newest_frame(orders.spark, Busy("table.json", going), orders.ref, "_")
    assert len(frame.collect()) == going.rows


def test_a_frame_of_a_log_whose_end_is_removed_at_each_look_is_an_error(lake: Lake) -> None:
    orders = lake()
    going = Going(orders, removes=True)
    going()
    with pytest.raises(RuntimeError, match="changes faster than it can be read"):
        newest_frame(orders.spark, Busy("/pending", going), orders.ref, "_")


def test_a_frame_mixes_no_rows_from_before_and_after_a_statement(lake: Lake) -> None:
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)")
    orders.put()

    def truncate() -> None:
        if orders.log.last == 1:
            orders.spark.sql(f"DELETE FROM {orders.ref.sql}")
            ToldHeld(LocalFiles(), orders.log_folder).tell_followed(1)
            orders.put(row(2, "two", 2))

    frame = newest_frame(orders.spark, Busy("/pending", truncate), orders.ref, "_")
    assert [each.id for each in frame.collect()] == [2]


@pytest.mark.soak
def test_a_catalogs_table_has_its_log_in_the_warehouse_or_where_it_is_told(lake: Lake) -> None:
    orders = lake()
    orders.put(row(2, "two", 2))
    orders.spark.sql(
        "CREATE TABLE default.orders_by_name USING delta AS SELECT 1L AS id, 'one' AS name, 1 AS price"
    )
    log = str(Path(orders.log_folder).parent)
    assert read(orders.spark, "orders_by_name") == [(1, "one", 1)]
    assert read(orders.spark, "default.orders_by_name", log=log) == [(1, "one", 1), (2, "two", 2)]


def test_what_is_not_there_is_told(lake: Lake, tmp_path: Path) -> None:
    orders = lake()
    with pytest.raises(LookupError, match="neither a table"):
        current(orders.spark, str(tmp_path / "lake/shop/no"))


def test_all_tables_of_a_lake_become_views(lake: Lake, tmp_path: Path) -> None:
    orders, log, history = lake(), lake("crm/changes", "changelog"), lake("crm/versions", "history")
    orders.put(row(1, "one", 1))
    log.put(row(7, op="insert", topic="cdc", partition=0, offset=7, index=0))
    history.put(row(1, op="insert", topic="cdc", partition=0, offset=7, index=0))
    made = create_views(orders.spark, str(tmp_path / "lake"), names="{table}_of_{database}")
    assert made == {"crm.changes": "changes_of_crm", "shop.orders": "orders_of_shop"}
    orders.put(row(2, "two", 2))
    assert orders.rows("orders_of_shop") == [(1, "one", 1), (2, "two", 2)]
    assert log.rows("changes_of_crm", "_offset") == [(7,)]
    with pytest.raises(NothingToSee):
        current(history.spark, history.path)


def test_no_view_of_a_lake_takes_the_name_of_another(lake: Lake, tmp_path: Path) -> None:
    orders, log = lake(), lake("shop/orders_changes", "changelog")
    log.owner["table"] = "orders"  # of another handler, which keeps the same table
    orders.put(row(1, "one", 1))
    log.put(row(2, op="insert", topic="cdc", partition=0, offset=7, index=0))
    with pytest.raises(ValueError, match=f"both {orders.path} and {log.path} would be shown as shop_orders:"):
        create_views(orders.spark, str(tmp_path / "lake"))
    create_views(orders.spark, str(tmp_path / "lake"), names="{database}_{table}_{mode}")
    assert [orders.rows(f"shop_orders_{each.mode}", "id") for each in (orders, log)] == [[(1,)], [(2,)]]


@pytest.mark.soak
def test_names_that_differ_in_case_or_contain_a_point_are_names_of_views(lake: Lake, tmp_path: Path) -> None:
    odd = lake("shop/order.items")
    odd.put(row(1, "one", 1))
    assert create_views(odd.spark, str(tmp_path / "lake")) == {"shop.order.items": "shop_order.items"}
    assert odd.rows("`shop_order.items`", "id") == [(1,)]
    lake("shop/Order.Items").put(row(1, "one", 1))
    with pytest.raises(ValueError, match=r"Order\.Items"):
        create_views(odd.spark, str(tmp_path / "lake"))


def test_a_changelog_of_parquet_files_is_read_by_its_folder(lake: Lake, tmp_path: Path) -> None:
    log = lake(mode="changelog")
    log.put(row(7, op="insert", topic="cdc", partition=0, offset=7, index=0))
    folder = Path(log.log_folder).rename(tmp_path / "lake" / "changes")
    assert [each["_offset"] for each in current(log.spark, str(folder)).collect()] == [7]
