"""New rows of the shop's tables, with texts in many scripts."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

Row = dict[str, Any]

_NAMES = (
    "Ada Lovelace", "Zoë Krüger", "李雷", "Şule Yıldız", "Олена Коваль", "Nuno Gonçalves", "佐藤 花子",
    "O'Neill, Máire", "Đặng Thị Mai", "नीलम शर्मा", 'Jens "Jeppe" Sørensen', "Łucja Żak",
)  # fmt: skip
_CITIES = ("Aarhus", "Łódź", "上海", "München", "São Paulo", "Київ", "İzmir", "Reykjavík")
_COLOURS = ("red", "grün", "藍")
_GOODS = ("Teapot", "Ink 墨", "Wool socks", "Lamp ☀", "Notebook A5", "Kettle", "Garden gnome", "Umbrella ☂")


def seconds(moment: datetime) -> datetime:
    """Truncate to the precision of a DATETIME."""
    return moment.replace(microsecond=0)


def milliseconds(moment: datetime) -> datetime:
    """Truncate to the precision of a DATETIME(3)."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def product(random: Random, number: int) -> Row:
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


def stock(random: Random, warehouse: int, number: int, now: datetime) -> Row:
    return {
        "warehouse": warehouse,
        "product_id": number,
        "quantity": random.randrange(50, 500),
        "reserved": 0,
        "counted_at": seconds(now),
    }


def promotion(random: Random, code: str, today: date) -> Row:
    return {
        "code": code,
        "percent": Decimal(random.randrange(200, 5000)) / 100,
        "starts": today,
        "ends": random.choice((None, today + timedelta(days=random.randrange(3, 90)))),
    }


def customer(random: Random, number: int, now: datetime) -> Row:
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


def address(random: Random, number: int, customer_id: int, kind: str) -> Row:
    return {
        "id": number,
        "customer_id": customer_id,
        "kind": kind,
        "street": f"Straße des {random.randrange(1, 31)}. Mai {random.randrange(1, 200)}",
        "city": random.choice(_CITIES),
        "postcode": f"{random.randrange(10**5):05d}",
    }


def order_line(random: Random, order: int, line: int, product_id: int, price: Decimal) -> Row:
    return {
        "order_id": order,
        "line": line,
        "product_id": product_id,
        "quantity": random.randrange(1, 6),
        "unit_price": price,
        "discount": Decimal(random.choice((0, 0, 0, 500, 1250))) / 10_000,
    }
