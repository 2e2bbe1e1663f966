"""Rows that get another key in Redis, on a real Redis: whole, or rejected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis_lab import RedisLab, orders
from servers.redis_node import RedisNode

from handlers import Rejected
from handlers.testing import make_batch

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


@pytest.mark.parametrize("template", ["user:{mail}", "{region}"])
def test_a_key_that_two_rows_may_have_is_refused_with_order_by_row(lab: RedisLab, template: str) -> None:
    """Of row 1, which leaves a key, and row 2, which takes it, the second may be written first."""
    first, second = {"id": 1, "region": "eu", "mail": "a"}, {"id": 2, "region": "us", "mail": "b"}
    with pytest.raises(Rejected, match=r"order_by: table") as told:
        lab.apply(make_batch("shop.orders", [first, second], key="id", shard=3), key=template)
    assert (told.value.at, lab.client.keys()) == (0, [])
    lab.apply(orders(first, second), key=template)
    assert len(lab.client.keys()) == 2


@pytest.mark.parametrize("template", ["{key}:{mail}", "{id}:{mail}"])
def test_a_key_of_one_row_alone_is_taken_with_order_by_row(lab: RedisLab, template: str) -> None:
    lab.apply(make_batch("shop.orders", [{"id": 1, "mail": "a"}], key="id", shard=3), key=template)
    assert lab.client.keys() == ["1:a"]
