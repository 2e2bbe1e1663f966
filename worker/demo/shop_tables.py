"""The shop's tables, and new rows for them with texts in many scripts."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from worker.demo.shop_source import Column, SourceTable

DATABASE = "shop"

TIER = Column("tier", "enum('silver','gold','platinum')")
"""The column that an ALTER TABLE adds to `customers` in the middle of the run."""
PARCELS = Column("parcels", "smallint unsigned")
"""The type that another ALTER TABLE gives to this column of `shipments`. Before, it is a tinyint."""

_TABLES = {
    "customers": (
        ("id",),
        "id int unsigned, email varchar(120), name varchar(80), born date, "
        "newsletter set('mail','sms','post'), vip tinyint(1), balance decimal(12,2), "
        "updated_at timestamp(3)",
    ),
    "addresses": (
        ("id",),
        "id int unsigned, customer_id int unsigned, kind enum('billing','shipping'), "
        "street varchar(120), city varchar(60), postcode char(8)",
    ),
    "products": (
        ("id",),
        "id int unsigned, sku varchar(16), title varchar(120), price decimal(10,2), "
        "weight_g smallint unsigned, rating double, since year, attributes json, picture binary(8)",
    ),
    "stock": (
        ("warehouse", "product_id"),
        "warehouse tinyint unsigned, product_id int unsigned, quantity int, reserved int, "
        "counted_at datetime",
    ),
    "orders": (
        ("id",),
        "id bigint unsigned, customer_id int unsigned, "
        "status enum('new','paid','shipped','delivered','cancelled'), total decimal(12,2), "
        "note varchar(200), placed_at datetime(6)",
    ),
    "order_items": (
        ("order_id", "line"),
        "order_id bigint unsigned, line smallint unsigned, product_id int unsigned, "
        "quantity smallint unsigned, unit_price decimal(10,2), discount decimal(5,4)",
    ),
    "payments": (
        ("id",),
        "id bigint, order_id bigint unsigned, method enum('card','transfer','invoice','voucher'), "
        "state enum('open','settled','refunded'), amount decimal(12,2), settled_at timestamp(6)",
    ),
    "shipments": (
        ("tracking",),
        "tracking varchar(20), order_id bigint unsigned, carrier enum('ferry','rail','road'), "
        "parcels tinyint unsigned, handed_over time, shipped_at datetime, delivered_at datetime",
    ),
    "promotions": (("code",), "code varchar(20), percent decimal(5,2), starts date, ends date"),
    "audit_log": ((), "at datetime(3), actor varchar(40), action varchar(40), detail text"),
}
"""Table -> its primary key, and its columns with types, as in CREATE TABLE."""
_Row = dict[str, Any]

_NAMES = (
    "Ada Lovelace", "Zoë Krüger", "李雷", "Şule Yıldız", "Олена Коваль", "Nuno Gonçalves", "佐藤 花子",
    "O'Neill, Máire", "Đặng Thị Mai", "नीलम शर्मा", 'Jens "Jeppe" Sørensen', "Łucja Żak",
)  # fmt: skip
_CITIES = ("Aarhus", "Łódź", "上海", "München", "São Paulo", "Київ", "İzmir", "Reykjavík")
_COLOURS = ("red", "grün", "藍")
_GOODS = ("Teapot", "Ink 墨", "Wool socks", "Lamp ☀", "Notebook A5", "Kettle", "Garden gnome", "Umbrella ☂")


def shop_tables() -> list[SourceTable]:
    return [
        SourceTable(name, key, [Column(*column.split(" ", 1)) for column in columns.split(", ")])
        for name, (key, columns) in _TABLES.items()
    ]


def seconds(moment: datetime) -> datetime:
    """Truncate to the precision of a DATETIME."""
    return moment.replace(microsecond=0)


def milliseconds(moment: datetime) -> datetime:
    """Truncate to the precision of a DATETIME(3)."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def product(random: Random, number: int) -> _Row:
    return {
        "id": number,
        "sku": f"SKU-{number:05d}",
        "title": f"{random.choice(_GOODS)} no. {number}",
        "price": Decimal(random.randrange(99, 99_999)) / 100,
        "weight_g": random.randrange(1, 60_000),
        "rating": random.choice((None, random.randrange(2, 11) / 2)),
        "since": random.randrange(2015, 2027),
        "attributes": f'{{"colour":"{random.choice(_COLOURS)}","parts":[1,{number}]}}',
        "picture": random.randbytes(7) + b"\0",
    }


def stock(random: Random, warehouse: int, number: int, now: datetime) -> _Row:
    return {
        "warehouse": warehouse,
        "product_id": number,
        "quantity": random.randrange(50, 500),
        "reserved": 0,
        "counted_at": seconds(now),
    }


def promotion(random: Random, code: str, today: date) -> _Row:
    return {
        "code": code,
        "percent": Decimal(random.randrange(200, 5000)) / 100,
        "starts": today,
        "ends": random.choice((None, today + timedelta(days=random.randrange(3, 90)))),
    }


def customer(random: Random, number: int, now: datetime) -> _Row:
    return {
        "id": number,
        "email": f"customer{number}@shop.example",
        "name": f"{random.choice(_NAMES)} {number}",
        "born": random.choice((None, date(1940, 1, 1) + timedelta(days=random.randrange(24_000)))),
        "newsletter": tuple(label for label in ("mail", "sms", "post") if random.random() < 0.4),
        "vip": int(random.random() < 0.1),
        "balance": Decimal("0.00"),
        "updated_at": milliseconds(now).replace(tzinfo=UTC),
    }


def address(random: Random, number: int, customer_id: int, kind: str) -> _Row:
    return {
        "id": number,
        "customer_id": customer_id,
        "kind": kind,
        "street": f"Straße des {random.randrange(1, 31)}. Mai {random.randrange(1, 200)}",
        "city": random.choice(_CITIES),
        "postcode": f"{random.randrange(10**5):05d}",
    }


def order_line(random: Random, order: int, line: int, product_id: int, price: Decimal) -> _Row:
    return {
        "order_id": order,
        "line": line,
        "product_id": product_id,
        "quantity": random.randrange(1, 6),
        "unit_price": price,
        "discount": Decimal(random.choice((0, 0, 0, 500, 1250))) / 10_000,
    }
