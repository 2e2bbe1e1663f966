"""How to test a handler: batches made of dicts, no Kafka. Run it with `pytest examples`."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from own_handler import LargeOrders

from binlane import Rejected
from binlane.testing import make_batch, opened


def test_an_order_above_the_limit_is_rejected_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "orders.txt"
    orders = [{"id": 1, "total": Decimal(20)}, {"id": 2, "total": Decimal(900)}]
    batch = make_batch("shop.orders", orders, key="id")

    with (
        opened(LargeOrders(file=str(file), above=10, reject_above=500)) as handler,
        pytest.raises(Rejected, match="900 is above 500") as rejected,
    ):
        handler.handle(batch)

    assert rejected.value.at == 1
    assert not file.exists()


def test_large_orders_are_written_when_they_come_and_when_their_total_changes(tmp_path: Path) -> None:
    file = tmp_path / "orders.txt"
    first: dict[str, Any] = {"id": 1, "total": Decimal("10.50"), "note": None}
    changes: list[dict[str, Any]] = [
        first,
        {"before": first, "after": {**first, "note": "the same total"}},
        {"before": first, "after": {**first, "total": Decimal("12.00")}},
        {"id": 2, "total": Decimal(10)},
        {"before": first, "after": None},
    ]

    with opened(LargeOrders(file=str(file), above=10)) as handler:
        handler.handle(make_batch("shop.orders", changes, key="id"))

    assert [line.split(" ")[:4] for line in file.read_text().splitlines()] == [
        ["order", "{'id':", "1}", "10.50"],
        ["order", "{'id':", "1}", "12.00"],
    ]
