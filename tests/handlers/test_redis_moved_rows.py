"""Rows that get another key in Redis without all their values, on a real Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from redis_lab import RedisLab, orders
from servers.redis_node import RedisNode

from handlers import Rejected

TYPES = {"id": "bigint", "region": "text", "doc": "text", "n": "int"}
FIRST = {"id": 1, "region": "eu", "doc": "large", "n": 1}
REGION = "{table}:{region}:{id}"


@pytest.fixture
def lab(redis_server: RedisNode) -> Iterator[RedisLab]:
    with RedisLab(redis_server.new_database("redis-moved-rows")) as lab:
        yield lab


def stored(lab: RedisLab, value: str) -> dict[str, dict[str, Any]]:
    keys = [str(key) for key in lab.client.scan_iter()]
    if value == "hash":
        return {key: dict(lab.client.hgetall(key)) for key in keys}  # type: ignore[arg-type]
    return {key: json.loads(str(lab.client.get(key))) for key in keys}


def texts(value: str, **row: Any) -> dict[str, Any]:
    return {name: str(one) for name, one in row.items()} if value == "hash" else row


def moved(old: int, new: int, offset: int = 5, **told: Any) -> list[dict[str, Any]]:
    """A changed key, without the large value."""
    after = {"id": new, "region": "eu", "n": 2, **told}
    made = {"before": None, "after": after, "lacks": frozenset({"doc"}), "index": 1}
    gone = {"before": {"id": old}, "after": None}
    return [{**half, "offset": offset, "moves_key": True} for half in (gone, made)]


@pytest.mark.parametrize("value", ["hash", "json"])
@pytest.mark.parametrize("one_batch", [True, False])
def test_a_column_of_the_key_changes(lab: RedisLab, value: str, one_batch: bool) -> None:
    update = {"before": {"id": 1, "region": "eu"}, "after": {"id": 1, "region": "us", "n": 2}}
    changes = [FIRST, update]
    batches = [orders(*changes, types=TYPES)] if one_batch else [orders(one, types=TYPES) for one in changes]
    lab.apply(*batches, key=REGION, value=value)
    assert stored(lab, value) == {"orders:us:1": texts(value, id=1, region="us", doc="large", n=2)}
    lab.apply(batches[-1], key=REGION, value=value)  # it comes again
    assert stored(lab, value) == {"orders:us:1": texts(value, id=1, region="us", doc="large", n=2)}


@pytest.mark.parametrize("value", ["hash", "json"])
def test_the_primary_key_changes(lab: RedisLab, value: str) -> None:
    lab.apply(orders(FIRST, types=TYPES), value=value)
    chain = orders(*moved(1, 2), *moved(2, 3, 6, n=3), types=TYPES)
    for _ in range(2):
        lab.apply(chain, value=value)
        assert stored(lab, value) == {"shop:orders:3": texts(value, id=3, region="eu", doc="large", n=3)}


def test_two_rows_swap_their_keys(lab: RedisLab) -> None:
    lab.apply(orders(FIRST, {**FIRST, "id": 2, "doc": "other"}, types=TYPES))
    lab.apply(orders(*moved(1, 9), *moved(2, 1, 6), *moved(9, 2, 7), types=TYPES))
    assert {key: row["doc"] for key, row in stored(lab, "hash").items()} == {
        "shop:orders:1": "other",
        "shop:orders:2": "large",
    }


def test_a_row_whose_old_half_is_in_another_record_is_rejected(lab: RedisLab) -> None:
    gone, made = moved(1, 2)
    lab.apply(orders(FIRST, types=TYPES))
    with pytest.raises(Rejected, match="its key changed") as told:
        lab.apply(orders(gone, {**made, "offset": 6}, types=TYPES))
    assert told.value.at == 1


def test_a_row_that_is_marked_as_deleted_stays_at_its_old_key(lab: RedisLab) -> None:
    _, made = moved(1, 2)
    marked = {"before": {"id": 1}, "after": {"id": 1, "deleted_at": "now"}, "offset": 5, "moves_key": True}
    lab.apply(orders(FIRST, types=TYPES))
    lab.apply(orders(marked, {**made, "after": {**made["after"], "deleted_at": None}}, types=TYPES))
    assert stored(lab, "hash") == {
        "shop:orders:1": texts("hash", **FIRST, deleted_at="now"),
        "shop:orders:2": texts("hash", id=2, region="eu", doc="large", n=2),
    }
