"""Flattened rows that tell a database and a table: two schemas' tables of one name are never one table."""

from __future__ import annotations

from typing import Any

import debezium_messages as debezium
import pytest

from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import PlainRoute, UndecodableRecord

_TOLD = {"__op": "c", "__db": "shop", "__table": "orders"}


def _record(topic: str, **told: str) -> Any:
    return debezium.record({"id": 7, **_TOLD, **told}, {"id": 7}, topic=topic)


@pytest.mark.parametrize(
    "topic", ["pg.sales.orders", "pg.public.orders", "sql.shop.dbo.orders", "prod.pg.eu.orders"]
)
def test_a_topic_that_may_tell_a_schema_is_refused_where_the_connector_is_not_known(topic: str) -> None:
    with pytest.raises(
        UndecodableRecord, match=r"shop.* may be a schema: .*source\.connector.* debezium\.source"
    ):
        Debezium().explain(_record(topic))


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        ("my.shop.orders", {}),
        ("prod.my.shop.orders", {}),
        ("my.shop.order.items", {"__table": "order.items"}),
        ("my._.__", {"__db": "订", "__table": "订单"}),
        ("all", {}),
        ("cdc.orders", {}),
        ("cdc.eu.all_orders", {}),
        ("my.routed.orders", {"__connector": "mysql"}),
        ("pg.sales.orders", {"__schema": "sales"}),
    ],
)
def test_a_topic_that_tells_no_other_database_is_no_fault(topic: str, told: dict[str, str]) -> None:
    database = told.get("__schema") or told.get("__db") or "shop"
    found = Debezium().explain(_record(topic, **told))
    assert found == PlainRoute(database, told.get("__table", "orders"))


def test_the_configuration_says_what_the_topic_tells() -> None:
    record = _record("pg.sales.orders")
    assert Debezium(DebeziumSettings(source="postgresql")).explain(record) == PlainRoute("sales", "orders")
    assert Debezium(DebeziumSettings(source="mysql")).explain(record) == PlainRoute("shop", "orders")
