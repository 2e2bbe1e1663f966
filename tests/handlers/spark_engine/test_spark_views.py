"""`views: true`: plain SQL of Spark's catalog reads tables with their waiting rows, as columns change."""

from __future__ import annotations

import time
from typing import Any

import pytest
from spark_lake import TYPES, Lake, MakeLake, change
from spark_sessions import SHARED
from test_spark_statements import RESULT, STREAM, row

from handlers.api import HandlerContext
from handlers.spark import SparkHandler
from handlers.spark.engine import keeper
from handlers.spark.engine.keeper import TakenName, Views

MORE = {**TYPES, "stock": "int"}

pytestmark = pytest.mark.usefixtures("told_to_merge")


@pytest.fixture
def lake(make_lake: MakeLake) -> Any:
    """No other test's views are in the catalog."""
    lake = make_lake()
    yield lake
    lake.spark.sql("DROP DATABASE IF EXISTS shop CASCADE")


def shown(lake: Lake, sql: str = "SELECT * FROM shop.orders") -> list[tuple[Any, ...]]:
    """What another session of the same catalog reads."""
    return sorted(map(tuple, lake.spark.newSession().sql(sql).collect()), key=repr)


def views(lake: Lake) -> Views:
    return Views(lake.handler._open.world)  # type: ignore[union-attr]


def ddl(offset: int, sql: str) -> Any:
    return change(offset, None, None, op="ddl", sql=sql)


def test_a_view_shows_rows_when_they_are_received_and_columns_that_the_table_has(lake: Lake) -> None:
    kept = views(lake)
    lake.take(change(0, {"id": 1, "name": "a"}))
    assert kept.keep(lake.sink())
    assert not lake.spark.catalog.databaseExists("shop")  # nothing is merged
    lake.sink().merge()
    assert kept.keep(lake.sink())
    lake.take(change(1, {"id": 2, "name": "b"}))
    assert shown(lake) == [(1, "a"), (2, "b")]
    lake.take(change(2, {"id": 1, "name": "c", "stock": 5}, MORE))
    assert shown(lake) == [(1, "c"), (2, "b")]
    assert kept.keep(lake.sink())
    assert shown(lake) == [(1, "c", 5), (2, "b", None)]
    lake.take(change(3, None, MORE, op="delete", before={"id": 2, "name": "b", "stock": None}))
    lake.take(change(4, {"id": 3, "name": "d", "stock": 7}, MORE))
    assert shown(lake) == [(1, "c", 5), (3, "d", 7)]


def test_a_view_has_no_column_that_its_table_lacks(lake: Lake) -> None:
    """Somebody else drops it, and the next merge adds it again: the view would show it as null then."""
    lake.take(change(0, {"id": 1, "name": "a"}))
    lake.sink().merge()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql("ALTER TABLE {t} DROP COLUMN name")
    lake.take(change(1, {"id": 2, "name": "b"}))
    assert views(lake).keep(lake.sink())
    assert shown(lake) == [(1,), (2,)]


def test_a_view_follows_statements_and_goes_with_its_table(lake: Lake) -> None:
    kept = views(lake)
    lake.take(STREAM[0])
    lake.sink().merge()
    kept.keep(lake.sink())
    before = shown(lake)
    for each in STREAM[1:]:
        lake.take(each)
    assert not kept.keep(lake.sink())  # a statement waits
    lake.sink().merge()
    assert kept.keep(lake.sink())
    assert shown(lake) == RESULT != before
    lake.take(row(8, 5, "f", stock=3))
    assert shown(lake) == [*RESULT, (5, "f", 3)]
    lake.take(ddl(9, "ALTER TABLE orders DROP COLUMN stock"))
    lake.sink().merge()
    assert kept.keep(lake.sink())
    assert shown(lake) == [(id, name) for id, name, _ in [*RESULT, (5, "f", 3)]]
    lake.take(ddl(10, "DROP TABLE orders"))
    lake.sink().merge()
    assert views(lake).keep(lake.sink())  # as a worker that has just started
    assert not lake.spark.catalog.tableExists("shop.orders")


def test_a_name_that_the_catalog_has_already_is_left_alone(lake: Lake) -> None:
    lake.take(change(0, {"id": 1, "name": "a"}))
    lake.sink().merge()
    lake.spark.sql("CREATE DATABASE shop")
    lake.spark.sql("CREATE VIEW shop.orders AS SELECT 'mine' AS of")
    kept = views(lake)
    with pytest.raises(TakenName, match=r"another `shop`\.`orders`"):
        kept.keep(lake.sink())
    assert kept.keep(lake.sink())  # it is reported once
    assert shown(lake) == [("mine",)]


def test_views_of_another_spark_are_created_again(lake: Lake) -> None:
    """A catalog in memory is gone with its Connect server."""
    lake.take(change(0, {"id": 1, "name": "a"}))
    lake.sink().merge()
    kept = views(lake)
    assert kept.keep(lake.sink())
    lake.spark.sql("DROP DATABASE shop CASCADE")
    kept.world.own.session = kept.world.spark.fresh()
    assert kept.keep(lake.sink())
    assert shown(lake) == [(1, "a")]


def test_other_modes_and_names_that_spark_rejects_have_names_of_their_own(
    lake: Lake, make_lake: MakeLake
) -> None:
    history = make_lake(mode="history", path="h/{database}/{table}")
    for each, table in ((history, "shop.orders"), (lake, "shop.order-items")):
        each.take(change(0, {"id": 1, "name": "a"}), table=table)
        sink = each.sink(table.partition(".")[2])
        sink.merge()
        assert views(each).keep(sink)
    assert shown(lake, "SELECT id, _current FROM shop.orders_history") == [(1, True)]
    lake.take(change(1, {"id": 2, "name": "b"}), table="shop.order-items")
    assert shown(lake, "SELECT id FROM shop.order_items") == [(1,), (2,)]


@pytest.mark.parametrize("is_on", [True, False])
def test_a_worker_keeps_views_if_they_are_wanted(
    lake: Lake, is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_TURN", 0.1)
    handler = SparkHandler(mode="replica", path="v/{database}/{table}")
    handler.open(
        HandlerContext(worker="t", handler="v", folder=lake.folder, spark={**SHARED, "views": is_on})
    )
    lake.close()
    lake.handler = handler
    lake.take(change(0, {"id": 1, "name": "a"}))
    lake.sink().merge()
    if not is_on:
        time.sleep(1)
    assert comes_to_be(lake, is_on) == is_on
    if is_on:
        lake.take(ddl(1, "DROP TABLE orders"))
        lake.sink().merge()
        assert not comes_to_be(lake, False, within=60)


def comes_to_be(lake: Lake, wanted: bool, within: float = 1) -> bool:
    """Whether there is a view, after waiting for what is wanted, or a moment."""
    until = time.monotonic() + (60 if wanted else within)
    while (there := lake.spark.catalog.tableExists("shop.orders")) != wanted and time.monotonic() < until:
        time.sleep(0.1)
    return bool(there)
