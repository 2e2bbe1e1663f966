"""Rows that get another key in Redis, on a real Redis: whole, or rejected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis_lab import RedisLab, orders
from servers.redis_node import RedisNode

from handlers import Rejected

TYPES = {"id": "bigint", "region": "text", "doc": "text"}
FIRST = {"id": 1, "region": "eu", "doc": "large"}
REGION = "{table}:{region}:{id}"


@pytest.fixture
def lab(redis_server: RedisNode) -> Iterator[RedisLab]:
    with RedisLab(redis_server.new_database("redis-moved-rows")) as lab:
        yield lab


@pytest.mark.parametrize("value", ["hash", "json"])
def test_a_row_that_lacks_values_does_not_move(lab: RedisLab, value: str) -> None:
    """What it lacks is at its former key, where another row may be when the batch comes again."""
    update = {"before": {"id": 1, "region": "eu"}, "after": {"region": "us"}}
    lab.apply(orders(FIRST, types=TYPES), key=REGION, value=value)
    held = lab.client.dump("orders:eu:1")
    with pytest.raises(Rejected, match=r"its key changed, and .* value of doc") as told:
        lab.apply(orders({**FIRST, "id": 2}, update, types=TYPES), key=REGION, value=value)
    assert told.value.at == 1
    assert (lab.client.keys(), lab.client.dump("orders:eu:1")) == (["orders:eu:1"], held)


def test_a_whole_row_moves(lab: RedisLab) -> None:
    update = {"before": FIRST, "after": {**FIRST, "region": "us"}}
    lab.apply(orders(FIRST, update, types=TYPES), key=REGION)
    assert lab.client.keys() == ["orders:us:1"]


def test_an_update_that_lacks_values_and_does_not_move_leaves_them(lab: RedisLab) -> None:
    update = {"before": {"id": 1, "region": "eu"}, "after": {"region": "eu"}}
    lab.apply(orders(FIRST, update, types=TYPES), key=REGION)
    assert lab.client.hget("orders:eu:1", "doc") == "large"
