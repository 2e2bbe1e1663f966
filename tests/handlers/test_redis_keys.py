"""The `redis` handler on a real Redis: the keys of rows, and options that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis_lab import RedisLab, orders
from servers.redis_node import RedisNode

from handlers import Rejected
from handlers.options.faults import check_options
from handlers.redis.handler import RedisHandler
from handlers.testing import make_batch, opened


@pytest.fixture
def lab(redis_server: RedisNode) -> Iterator[RedisLab]:
    with RedisLab(redis_server.new_database("redis-keys")) as lab:
        yield lab


# ---- keys


def test_values_of_a_key_of_several_columns_are_kept_apart(lab: RedisLab) -> None:
    rows = [{"a": "x:y", "b": "z"}, {"a": "x", "b": "y:z"}, {"a": "x%3Ay", "b": "z"}]
    lab.apply(orders(*rows, key=("a", "b")))
    assert sorted(lab.client.keys()) == [
        "shop:orders:x%253Ay:z",
        "shop:orders:x%3Ay:z",
        "shop:orders:x:y%3Az",
    ]


def test_the_value_of_a_key_of_one_column_stays_as_it_is(lab: RedisLab) -> None:
    lab.apply(orders({"id": "urn:x:1%"}, table="a:b.c%"), key="{database}/{table}/{key}")
    assert lab.client.keys() == ["a%3Ab/c%25/urn:x:1%"]


def test_columns_may_make_the_key(lab: RedisLab) -> None:
    lab.apply(orders({"mail": "a@b", "key": 5}, key=None), key="{{user}}:{mail}:{column:key}")
    assert lab.client.keys() == ["{user}:a@b:5"]


def test_a_row_moves_when_a_column_of_its_key_changes(lab: RedisLab) -> None:
    row = {"id": 1, "mail": "a@b", "name": "Ann"}
    update = {"before": row, "after": row | {"mail": "c@d"}, "lacks": frozenset()}
    lab.apply(orders(row), orders(update), key="user:{mail}")
    assert lab.client.keys() == ["user:c@d"]
    assert lab.client.hgetall("user:c@d") == {"id": "1", "mail": "c@d", "name": "Ann"}


@pytest.mark.parametrize("template", ["order:{id}:{shop}", "{shop}:{key}"])
def test_an_update_needs_no_old_row_if_the_key_is_made_of_the_primary_key(
    template: str, lab: RedisLab
) -> None:
    """PostgreSQL sends none by default: an update that changes the primary key comes as two changes."""
    row = {"id": 1, "shop": 2, "name": "Ann"}
    update = {"op": "update", "before": None, "after": row | {"name": "Bea"}, "lacks": frozenset[str]()}
    key = ("id", "shop")
    lab.apply(orders(row, key=key), orders(update, key=key), key=template)
    [found] = lab.client.keys()
    assert lab.client.hget(found, "name") == "Bea"


@pytest.mark.parametrize(
    ("changes", "key", "template", "told"),
    [
        ([{"id": 1}, {"name": "x"}], None, "{table}:{key}", "no primary key"),
        ([{"id": 1}, {"id": None}], "id", "{table}:{key}", "id is NULL"),
        ([{"id": 1, "mail": "x"}, {"id": 2}], "id", "user:{mail}", "no column mail"),
        ([{"id": 1, "mail": "x"}, {"before": {"id": 1}, "after": None}], "id", "{mail}", "no column mail"),
        (
            [{"id": 1, "mail": "x"}, {"before": None, "after": {"id": 1, "mail": "y"}, "op": "update"}],
            "id",
            "{mail}",
            "no column mail",
        ),
    ],
)
def test_a_row_without_a_key_is_rejected_with_its_place(
    lab: RedisLab, changes: list[dict[str, Any]], key: str | None, template: str, told: str
) -> None:
    batch = make_batch("shop.orders", changes, key=key, topic="cdc", partition=3, offset=40)
    with (
        opened(RedisHandler(url=lab.url, key=template)) as handler,
        pytest.raises(Rejected, match=told) as caught,
    ):
        handler.handle(batch)
    place = 0 if told == "no primary key" else 1
    assert caught.value.at == place
    assert f"shop.orders, cdc[3] offset {40 + place}" in str(caught.value)
    assert lab.client.dbsize() == 0


def test_a_value_without_a_form_is_rejected_at_its_row(lab: RedisLab) -> None:
    batch = orders({"id": 1, "name": "x"}, {"id": 2, "name": object()})
    for value in ("hash", "json"):
        with (
            opened(RedisHandler(url=lab.url, value=value)) as handler,
            pytest.raises(Rejected, match="type object") as caught,
        ):
            handler.handle(batch)
        assert caught.value.at == 1
    assert lab.client.dbsize() == 0


def test_an_update_of_some_columns_is_rejected_where_the_key_holds_no_hash(lab: RedisLab) -> None:
    lab.client.set("shop:orders:2", "not a row")
    batch = orders(
        {"id": 1, "name": "x"},
        {"before": {"id": 2}, "after": {"id": 2, "name": "y"}},
        types={"id": "bigint", "name": "text", "note": "text"},
    )
    with opened(RedisHandler(url=lab.url)) as handler, pytest.raises(Rejected, match="WRONGTYPE") as caught:
        handler.handle(batch)
    assert caught.value.at == 1


# ---- options


@pytest.mark.parametrize(
    ("options", "path", "told"),
    [
        ({}, "url", "missing"),
        ({"url": "localhost:6379"}, "url", "redis://HOST"),
        ({"url": "redis://u:hunter22@h/db"}, "url", "redis://HOST"),
        ({"url": "redis://h:66666666/0"}, "url", "redis://HOST"),
        ({"url": "redis://h?shoe=5"}, "url", "redis://HOST"),
        ({"url": "redis://h", "key": "{database}"}, "key", "same key"),
        ({"url": "redis://h", "key": "{key"}, "key", "single {"),
        ({"url": "redis://h", "key": "{}"}, "key", "has no name"),
        ({"url": "redis://h", "value": "jsn"}, "value", "json"),
        ({"url": "redis://h", "expire": "1 day"}, "expire", "duration"),
        ({"url": "redis://h", "truncate": True, "key": "x:{key}"}, "truncate", "colon"),
        ({"url": "redis://h", "truncate": True, "key": "{table}_{key}"}, "truncate", "colon"),
        ({"url": "redis://h", "keys": "x"}, "keys", "nearest: key"),
    ],
)
def test_options_that_cannot_be_used_are_faults(options: dict[str, Any], path: str | None, told: str) -> None:
    (fault,) = check_options(RedisHandler, options)
    assert fault.path == ((path,) if path else ())
    assert told in fault.message
    assert "hunter22" not in fault.message
