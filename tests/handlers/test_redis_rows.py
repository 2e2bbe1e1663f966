"""The `redis` handler on a real Redis: what a batch leaves at which key."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
import redis
from redis_lab import RedisLab, orders
from servers.redis_node import RedisNode
from structlog.testing import capture_logs

from handlers import Rejected

TYPES = {"id": "bigint", "name": "varchar(60)", "note": "text"}


@pytest.fixture
def lab(redis_server: RedisNode) -> Iterator[RedisLab]:
    with RedisLab(redis_server.new_database("redis-rows")) as lab:
        yield lab


# ---- hashes


def test_a_row_is_a_hash_under_the_names_of_its_table_and_its_key(lab: RedisLab) -> None:
    lab.apply(orders({"id": 7, "name": "Ann", "note": None}))
    assert lab.client.keys() == ["shop:orders:7"]
    assert lab.client.hgetall("shop:orders:7") == {"id": "7", "name": "Ann"}


def test_every_type_of_value_has_its_text(lab: RedisLab) -> None:
    row = {
        "id": 18446744073709551615,
        "price": Decimal("10.50"),
        "ratio": 0.5,
        "paid": True,
        "day": dt.date(2025, 5, 5),
        "at": dt.datetime(2025, 5, 5, 5, 5, 5, 123456, tzinfo=dt.UTC),
        "span": dt.timedelta(hours=-30, seconds=1),
        "tags": ("a", "b"),
        "raw": "é".encode(),
        "doc": '{"a":1}',
    }
    lab.apply(orders(row))
    assert lab.client.hgetall("shop:orders:18446744073709551615") == {
        "id": "18446744073709551615",
        "price": "10.50",
        "ratio": "0.5",
        "paid": "true",
        "day": "2025-05-05",
        "at": "2025-05-05T05:05:05.123456+00:00",
        "span": "-29:59:59",
        "tags": "a,b",
        "raw": "é",
        "doc": '{"a":1}',
    }


def test_bytes_stay_bytes_in_a_hash(lab: RedisLab) -> None:
    lab.apply(orders({"id": 1, "raw": b"\x00\xff"}))
    with redis.Redis.from_url(lab.url) as client:
        assert client.hget("shop:orders:1", "raw") == b"\x00\xff"


def test_an_update_leaves_no_field_of_a_column_that_went(lab: RedisLab) -> None:
    before = {"id": 1, "name": "Ann", "dropped": "x", "note": "old"}
    update = {
        "before": {"id": 1, "name": "Ann", "note": "old"},
        "after": {"id": 1, "name": "Bo", "note": None},
    }
    lab.apply(orders(before), orders(update, types=TYPES))
    assert lab.client.hgetall("shop:orders:1") == {"id": "1", "name": "Bo"}


def test_columns_that_an_update_did_not_send_stay(lab: RedisLab) -> None:
    lab.apply(
        orders({"id": 1, "name": "Ann", "note": "long text"}, {"id": 2, "name": "Bo", "note": "x"}),
        orders({"before": {"id": 1}, "after": {"id": 1, "name": "Cy"}}, types=TYPES),
        orders({"before": {"id": 2}, "after": {"id": 2, "note": None}, "op": "update"}, types=TYPES),
    )
    assert lab.client.hgetall("shop:orders:1") == {"id": "1", "name": "Cy", "note": "long text"}
    assert lab.client.hgetall("shop:orders:2") == {"id": "2", "name": "Bo"}


def test_a_column_that_an_update_did_not_send_is_that_of_the_row_before(lab: RedisLab) -> None:
    before = {"id": 1, "name": "Ann", "note": "long text"}
    lab.apply(orders({"before": before, "after": {"id": 1, "name": "Cy"}}, types=TYPES))
    assert lab.client.hgetall("shop:orders:1") == {"id": "1", "name": "Cy", "note": "long text"}


def test_the_last_change_of_a_row_wins_within_a_batch(lab: RedisLab) -> None:
    first, second = {"id": 1, "name": "a", "note": "n"}, {"id": 1, "name": "b"}
    lab.apply(
        orders(
            first,
            {"before": first, "after": None},
            {"id": 2, "name": "x", "note": "n"},
            {"before": {"id": 2}, "after": {"id": 2, "name": "y"}},
            {"id": 1, "name": "a", "note": "again"},
            {"before": {"id": 1}, "after": second},
            {"id": 3, "name": "gone"},
            {"before": {"id": 3}, "after": None},
            types=TYPES,
        ),
    )
    assert lab.client.hgetall("shop:orders:1") == {"id": "1", "name": "b", "note": "again"}
    assert lab.client.hgetall("shop:orders:2") == {"id": "2", "name": "y", "note": "n"}
    assert lab.client.exists("shop:orders:3") == 0


def test_a_delete_and_an_insert_move_a_row_to_its_new_key(lab: RedisLab) -> None:
    lab.apply(orders({"id": 1}), orders({"before": {"id": 1}, "after": None}, {"id": 2}))
    assert lab.client.keys() == ["shop:orders:2"]


def test_applying_a_batch_twice_changes_nothing(lab: RedisLab) -> None:
    batch = orders(
        {"id": 1, "name": "a"}, {"before": {"id": 1}, "after": {"id": 1, "name": "b"}}, {"id": 2, "name": "c"}
    )
    lab.apply(batch)
    once = {key: lab.client.hgetall(key) for key in lab.client.scan_iter()}
    lab.apply(batch)
    assert {key: lab.client.hgetall(key) for key in lab.client.scan_iter()} == once


def test_more_rows_than_one_transaction_takes_are_all_written(lab: RedisLab) -> None:
    lab.apply(orders(*({"id": number} for number in range(1201))))
    assert lab.client.dbsize() == 1201


# ---- JSON


def test_a_row_is_a_json_text(lab: RedisLab) -> None:
    lab.apply(orders({"id": 1, "price": Decimal("1.50"), "raw": b"\xff", "note": None}), value="json")
    assert json.loads(lab.client.get("shop:orders:1") or "") == {
        "id": 1,
        "price": "1.50",
        "raw": {"base64": "/w=="},
        "note": None,
    }


def test_columns_that_an_update_did_not_send_stay_in_the_json_text(lab: RedisLab) -> None:
    lab.apply(
        orders({"id": 1, "name": "Ann", "note": "long text"}),
        orders({"before": {"id": 1}, "after": {"id": 1, "name": "Cy"}}, types=TYPES),
        orders({"before": {"id": 2}, "after": {"id": 2, "name": "unknown"}}, types=TYPES),
        value="json",
    )
    assert json.loads(lab.client.get("shop:orders:1") or "") == {"id": 1, "name": "Cy", "note": "long text"}
    assert json.loads(lab.client.get("shop:orders:2") or "") == {"id": 2, "name": "unknown"}


def test_a_key_of_another_kind_is_written_over(lab: RedisLab) -> None:
    lab.client.set("shop:orders:1", "not a row")
    lab.client.hset("shop:orders:2", "not", "a row")
    lab.apply(orders({"id": 1, "name": "Ann"}))
    lab.apply(orders({"id": 2, "name": "Bo"}), value="json")
    assert lab.client.hgetall("shop:orders:1") == {"id": "1", "name": "Ann"}
    assert json.loads(lab.client.get("shop:orders:2") or "") == {"id": 2, "name": "Bo"}


# ---- columns, expiry, truncate


@pytest.mark.parametrize("held", ["no object", "[1]", {"id": "1", "doc": "long"}])
def test_an_update_that_lacks_columns_is_rejected_where_they_cannot_be_read(lab: RedisLab, held: Any) -> None:
    """As after `value: hash` was changed to `json`: the column that does not come would be lost."""
    if isinstance(held, str):
        lab.client.set("shop:orders:1", held)
    else:
        lab.client.hset("shop:orders:1", mapping=held)
    update = {"op": "update", "before": None, "after": {"id": 1, "name": "b"}, "lacks": frozenset({"doc"})}
    with pytest.raises(Rejected, match=r"WRONGTYPE|no JSON object") as caught:
        lab.apply(orders({"id": 2}, update), value="json")
    assert caught.value.at == 1
    found = lab.client.get if isinstance(held, str) else lab.client.hgetall
    assert found("shop:orders:1") == held


@pytest.mark.parametrize("value", ["hash", "json"])
def test_rows_expire_after_their_last_change(lab: RedisLab, value: str) -> None:
    lab.apply(orders({"id": 1, "name": "a"}), value=value, expire="1h")
    assert 3_590_000 < int(lab.client.pttl("shop:orders:1")) <= 3_600_000
    lab.client.pexpire("shop:orders:1", 60_000)
    lab.apply(orders({"before": {"id": 1}, "after": {"id": 1, "name": "b"}}), value=value, expire="1h")
    assert int(lab.client.pttl("shop:orders:1")) > 3_590_000


@pytest.mark.parametrize(
    "change", [{"sql": "TRUNCATE orders", "op": "truncate"}, {"sql": "/* x */ drop table `orders`"}]
)
def test_truncate_and_drop_remove_the_keys_of_their_table_alone(
    lab: RedisLab, change: dict[str, Any]
) -> None:
    lab.apply(
        orders(*({"id": number} for number in range(1500))),
        orders({"id": 1}, table="shop.orders_old"),
        orders({"id": 1}, table="shop.orders:old"),
        orders({"id": 1}, table="shopX.orders"),
        orders({"id": 1}, table="shop.order*"),
        orders(change),
    )
    assert sorted(lab.client.keys()) == [
        "shop:order*:1",
        "shop:orders%3Aold:1",
        "shop:orders_old:1",
        "shopX:orders:1",
    ]
    lab.apply(orders({"sql": "TRUNCATE", "op": "truncate"}, table="shop.order*"))
    assert lab.client.exists("shop:orders_old:1") == 1


def test_a_statement_removes_the_keys_of_all_tables_that_it_drops(lab: RedisLab) -> None:
    rows = [orders({"id": 1}, table=table) for table in ("shop.orders", "shop.items", "shop.x", "crm.y")]
    drop = orders({"sql": "DROP TABLE IF EXISTS `shop`.`orders`, shop.items, crm.y /* x */"})
    with capture_logs() as logs:
        lab.apply(*rows, drop, handles=lambda table: table.startswith("shop."))
    assert sorted(lab.client.keys()) == ["crm:y:1", "shop:x:1"]
    told = [log["because"] for log in logs if log["event"] == "ddl_refused"]
    assert told == ["no rule routes crm.y to this handler"]
    lab.apply(rows[1], orders({"sql": "TRUNCATE TABLE items"}))
    assert lab.client.exists("shop:items:1") == 0


@pytest.mark.parametrize("options", [{"truncate": False}, {"key": "order:{key}"}])
def test_truncate_removes_nothing_where_it_is_off_or_the_keys_do_not_begin_with_the_table(
    lab: RedisLab, options: dict[str, Any]
) -> None:
    lab.apply(orders({"id": 1}), orders({"sql": "TRUNCATE orders", "op": "truncate"}), **options)
    assert lab.client.dbsize() == 1


def test_other_ddl_changes_nothing(lab: RedisLab) -> None:
    lab.apply(orders({"id": 1}), orders({"sql": "ALTER TABLE orders DROP COLUMN x"}))
    assert lab.client.dbsize() == 1
