"""How Spark goes about a view: what waits is read once, and the table is left where it is."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from view_lab import COLUMNS, HandMade, row, shape

Lake = Callable[..., HandMade]

SEVERAL = shape(("region", "id"), id=pa.int64(), region=pa.string(), price=pa.int32())


@pytest.fixture
def orders(lake: Lake) -> HandMade:
    orders = lake()
    orders.table(COLUMNS, "(1, 'one', 1)", "(2, 'two', 2)", "(3, 'three', 3)")
    orders.put(row(2, "zwei", 22), row(4, "vier", 4, op="insert"))
    orders.put(row(2, "deux", 222), row(3, op="delete"))
    return orders


@pytest.fixture
def regions(lake: Lake) -> HandMade:
    regions = lake("shop/regions")
    regions.table("id BIGINT, region STRING, price INT", "(1, 'n', 1)", "(1, 's', 2)")
    regions.put({"op": "upsert", "id": 1, "region": "s", "price": 20}, of=SEVERAL)
    regions.put({"op": "delete", "id": 1, "region": "n"}, of=SEVERAL)
    return regions


def plan_of(made: HandMade, sql: str) -> list[str]:
    """The lines of the plan that was run, each with its depth as indentation."""
    frame = made.spark.sql(sql)
    frame.collect()
    text = str(frame._jdf.queryExecution().executedPlan().toString())
    return text.partition("+- == Initial Plan ==")[0].splitlines()


def depth(line: str) -> int:
    return len(line) - len(line.lstrip(" :+-"))


def below(plan: list[str], place: int) -> list[str]:
    """The steps whose result the one in this line uses, directly or not."""
    found = []
    for line in plan[place + 1 :]:
        if depth(line) <= depth(plan[place]):
            break
        found.append(line)
    return found


def check(plan: list[str]) -> None:
    scans = [line for line in plan if "FileScan parquet" in line]
    segments = [line for line in scans if "_op#" in line]
    [table] = [line for line in scans if line not in segments]
    assert len(segments) == 1, plan
    shuffles = [
        place for place, line in enumerate(plan) if re.search(r"[:+ -]Exchange hashpartitioning", line)
    ]
    assert len([place for place in shuffles if segments[0] in below(plan, place)]) == 1, plan
    assert not [place for place in shuffles if table in below(plan, place)], plan
    sorts = [place for place, line in enumerate(plan) if re.search(r"\b(Sort|Window) \[", line)]
    assert not [place for place in sorts if table in below(plan, place)], plan
    assert any("ReusedExchange" in line for line in plan), plan


QUERIES = {
    "all": "SELECT * FROM {view}",
    "some columns": "SELECT max(price) AS most, count(*) FROM {view} WHERE price > 1",
    "a key": "SELECT price FROM {view} WHERE id = 2",
    "keys alone": "SELECT id FROM {view}",
}


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(query, id=name, marks=() if name == "some columns" else pytest.mark.soak)
        for name, query in QUERIES.items()
    ],
)
def test_segments_are_read_and_shuffled_once_and_the_table_is_not_shuffled(
    orders: HandMade, query: str
) -> None:
    check(plan_of(orders, query.format(view=f"({orders.view()})")))


def test_a_key_of_several_columns_is_looked_up_alike(regions: HandMade) -> None:
    check(plan_of(regions, f"SELECT * FROM ({regions.view(SEVERAL)})"))
    assert regions.shown(SEVERAL) == [(1, "s", 20)]


@pytest.mark.soak
def test_more_changes_than_are_broadcast_give_the_same_rows(orders: HandMade, regions: HandMade) -> None:
    """Where segments are large, both are shuffled by key."""
    few = orders.shown(), regions.shown(SEVERAL)
    limits = ("spark.sql.autoBroadcastJoinThreshold", "spark.sql.adaptive.autoBroadcastJoinThreshold")
    for name in limits:
        orders.spark.conf.set(name, "-1")
    try:
        plan = plan_of(orders, f"SELECT * FROM ({orders.view()})")
        assert not any("BroadcastHashJoin" in line for line in plan), plan
        assert (orders.shown(), regions.shown(SEVERAL)) == few
    finally:
        for name in limits:
            orders.spark.conf.unset(name)
