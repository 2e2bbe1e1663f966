"""Simulate a small shop: the same seed gives the same changes, with a busy middle and quiet edges.

Most changes are order lines and stock. The others are statements of many rows, deletes, changed keys, columns
that are added, renamed and retyped, a truncate, and a table without a key."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from worker.demo import shop_tables as shop_rows
from worker.demo.shop_source import Message, SourceDatabase
from worker.demo.shop_tables import DATABASE, PARCELS, TIER, shop_tables

_NOTES = (None, None, None, "ring twice", "gift 🎁", "leave it at the neighbour's", "one\ntwo", 'say "hi"')
_METHODS = ("card", "transfer", "invoice", "voucher")
_CARRIERS = ("ferry", "rail", "road")
_TIERS = ("silver", "gold", "platinum")
_WAREHOUSES = (1, 2)
_MAX_LINES = 9
_FIRST_ORDER = 10_001
_FLUSH_SECONDS = 60


class Shop:
    """`messages()` plays at least `changes` row changes. Afterwards `tables` contain the final rows.

    `clock`: the source's commit times, in ms since 1970. Everything else depends only on the seed."""

    def __init__(self, changes: int = 50_000, *, seed: int = 7, clock: Callable[[], int]) -> None:
        self._wanted = changes
        self._random = Random(seed)
        self._source = SourceDatabase(DATABASE, shop_tables(), clock)
        self.tables = self._source.tables
        self._now = datetime(2026, 3, 2, 8, 0, 0)
        self._products = max(20, changes // 125)
        self._customers = 0
        self._orders = 0
        self._addresses: list[int] = []
        self._last_address = 0
        self._most_parcels = 4
        # Orders by their next step, and shipments on their way.
        self._new: list[int] = []
        self._paid: list[int] = []
        self._shipped: list[str] = []

    @property
    def changes(self) -> int:
        return self._source.changes

    def messages(self) -> Iterator[Message]:
        """Yield the stream in order. Message number n is the n-th, from 0."""
        self._source.statement(f"CREATE DATABASE IF NOT EXISTS `{DATABASE}` CHARACTER SET utf8mb4")
        self._open_shop()
        yield from self._source.take()
        actions: dict[Callable[[], None], int] = {
            self._place_order: 34, self._pay: 28, self._ship: 20, self._deliver: 14, self._cancel: 3,
            self._register: 7, self._edit_customer: 9, self._move_house: 3, self._reprice: 2,
            self._restock: 3, self._correct_tracking: 1,
        }  # fmt: skip
        once = [
            (0.3, self._rename_titles), (0.4, self._introduce_tiers), (0.5, self._allow_large_orders),
            (0.6, self._end_season),
        ]  # fmt: skip
        while self.changes < self._wanted:
            if once and self.changes >= self._wanted * once[0][0]:
                once.pop(0)[1]()
            [action] = self._random.choices(list(actions), list(actions.values()))
            self._now += timedelta(microseconds=self._random.randrange(1, 40_000_000))
            action()
            yield from self._source.take()

    def _open_shop(self) -> None:
        random, now = self._random, self._now
        for first in range(1, self._products + 1, 40):
            numbers = range(first, min(first + 40, self._products + 1))
            self._source.insert("products", *(shop_rows.product(random, number) for number in numbers))
            for warehouse in _WAREHOUSES:
                rows = (shop_rows.stock(random, warehouse, number, now) for number in numbers)
                self._source.insert("stock", *rows)
        for _ in range(self._products // 2):
            self._register()
        self._promote("WINTER", 12)

    def _promote(self, season: str, count: int) -> None:
        today = self._now.date()
        codes = (f"{season}{number}" for number in range(1, count + 1))
        self._source.insert("promotions", *(shop_rows.promotion(self._random, code, today) for code in codes))

    def _place_order(self) -> None:
        random = self._random
        self._orders += 1
        order, count = _FIRST_ORDER + self._orders, min(_MAX_LINES, 1 + int(random.expovariate(0.3)))
        # Few products are popular: the square of a random number is usually small.
        products = [1 + int(self._products * random.random() ** 2) for _ in range(count)]
        prices = [self.tables["products"].rows[(product,)]["price"] for product in products]
        lines = [
            shop_rows.order_line(random, order, number, product, price)
            for number, (product, price) in enumerate(zip(products, prices, strict=True), 1)
        ]
        total = sum((line["unit_price"] * line["quantity"] for line in lines), Decimal(0))
        row = {"id": order, "customer_id": self._customer(), "status": "new", "total": total}
        self._source.insert("orders", {**row, "note": random.choice(_NOTES), "placed_at": self._now})
        self._source.insert("order_items", *lines)
        for line in lines:
            self._reserve(line["product_id"], line["quantity"])
        row = {"id": _payment(order), "order_id": order, "method": random.choice(_METHODS), "state": "open"}
        self._source.insert("payments", {**row, "amount": total, "settled_at": None})
        self._new.append(order)

    def _pay(self) -> None:
        if (order := self._pop(self._new)) is not None:
            settled = self._now.replace(tzinfo=UTC)
            self._source.update("payments", {(_payment(order),): {"state": "settled", "settled_at": settled}})
            self._source.update("orders", {(order,): {"status": "paid"}})
            self._paid.append(order)

    def _ship(self) -> None:
        random = self._random
        if (order := self._pop(self._paid)) is None:
            return
        tracking = f"BX{order}{random.randrange(10**8):08d}"
        row = {"tracking": tracking, "order_id": order, "carrier": random.choice(_CARRIERS)}
        row["parcels"] = random.randrange(1, self._most_parcels)
        # Late night hours belong to the previous day, as in timetables.
        row["handed_over"] = timedelta(minutes=random.randrange(6 * 60, 27 * 60))
        row["shipped_at"] = shop_rows.seconds(self._now)
        self._source.insert("shipments", row)
        self._source.update("orders", {(order,): {"status": "shipped"}})
        self._log("warehouse", "shipped", f"order {order} → {tracking}")
        self._shipped.append(tracking)

    def _deliver(self) -> None:
        if (tracking := self._pop(self._shipped)) is not None:
            order = self.tables["shipments"].rows[(tracking,)]["order_id"]
            delivered = shop_rows.seconds(self._now)
            self._source.update("shipments", {(tracking,): {"delivered_at": delivered}})
            self._source.update("orders", {(order,): {"status": "delivered"}})

    def _cancel(self) -> None:
        if (order := self._pop(self._new)) is None:
            return
        items = self.tables["order_items"].rows
        lines = [items[key] for line in range(1, _MAX_LINES + 1) if (key := (order, line)) in items]
        self._source.delete("order_items", *((order, line["line"]) for line in lines))
        for line in lines:
            self._reserve(line["product_id"], -line["quantity"])
        self._source.update("orders", {(order,): {"status": "cancelled", "total": Decimal("0.00")}})
        self._source.update("payments", {(_payment(order),): {"state": "refunded"}})
        self._log("office", "cancelled", f"order {order}")

    def _register(self) -> None:
        self._customers += 1
        number = self._customers
        self._source.insert("customers", shop_rows.customer(self._random, number, self._now))
        kinds = self._random.choice((("billing",), ("billing", "shipping")))
        self._source.insert("addresses", *(self._address(number, kind) for kind in kinds))

    def _edit_customer(self) -> None:
        random = self._random
        values: dict[str, Any] = {"updated_at": shop_rows.milliseconds(self._now).replace(tzinfo=UTC)}
        if random.random() < 0.5:
            values["balance"] = Decimal(random.randrange(-50_000, 500_000)) / 100
        if TIER in self.tables["customers"].columns:
            values[TIER.name] = random.choice(_TIERS)
        self._source.update("customers", {(self._customer(),): values})

    def _move_house(self) -> None:
        number = self._pop(self._addresses)
        old = self.tables["addresses"].rows[(number,)]
        self._source.delete("addresses", (number,))
        self._source.insert("addresses", self._address(old["customer_id"], old["kind"]))

    def _reprice(self) -> None:
        products = sorted(self._random.sample(range(1, self._products + 1), self._random.randrange(5, 20)))
        factor = Decimal(self._random.randrange(80, 125)) / 100
        prices = {number: self.tables["products"].rows[(number,)]["price"] * factor for number in products}
        cents = Decimal("0.01")
        self._source.update(
            "products", {(n,): {"price": price.quantize(cents)} for n, price in prices.items()}
        )

    def _restock(self) -> None:
        products = sorted(self._random.sample(range(1, self._products + 1), self._random.randrange(5, 20)))
        keys = [(self._random.choice(_WAREHOUSES), product) for product in products]
        stock, counted = self.tables["stock"].rows, shop_rows.seconds(self._now)
        self._source.update(
            "stock", {key: {"quantity": stock[key]["quantity"] + 100, "counted_at": counted} for key in keys}
        )

    def _correct_tracking(self) -> None:
        if (tracking := self._pop(self._shipped)) is not None:
            corrected = f"{tracking[:2]}{self._random.randrange(10**13):013d}X"
            self._source.update("shipments", {(tracking,): {"tracking": corrected}})
            self._shipped.append(corrected)

    def _rename_titles(self) -> None:
        self._source.rename_column("products", "title", "name")

    def _introduce_tiers(self) -> None:
        self._source.add_column("customers", TIER, default=_TIERS[0], after="vip")

    def _allow_large_orders(self) -> None:
        self._source.widen_column("shipments", PARCELS)
        self._most_parcels = 60_000

    def _end_season(self) -> None:
        self._source.truncate("promotions")
        self._promote("SPRING", 7)
        self._source.update("promotions", {("SPRING7",): {"code": "SPRING77", "percent": Decimal("7.70")}})

    def _customer(self) -> int:
        return self._random.randrange(1, self._customers + 1)

    def _address(self, customer: int, kind: str) -> dict[str, Any]:
        self._last_address += 1
        self._addresses.append(self._last_address)
        return shop_rows.address(self._random, self._last_address, customer, kind)

    def _reserve(self, product: int, pieces: int) -> None:
        key = (self._random.choice(_WAREHOUSES), product)
        row = self.tables["stock"].rows[key]
        values = {"quantity": row["quantity"] - pieces, "reserved": row["reserved"] + pieces}
        self._source.update("stock", {key: values})

    def _log(self, actor: str, action: str, detail: str) -> None:
        row = {"at": shop_rows.milliseconds(self._now), "actor": actor, "action": action, "detail": detail}
        self._source.insert("audit_log", row)

    def _pop(self, waiting: list[Any]) -> Any:
        """Remove and return a random item; None if the list is empty."""
        if not waiting:
            return None
        place = self._random.randrange(len(waiting))
        waiting[place], waiting[-1] = waiting[-1], waiting[place]
        return waiting.pop()


def _payment(order: int) -> int:
    """Each order has one payment."""
    return 7_000_000_000 + order


def play(shop: Shop, bootstrap_servers: str, topic: str) -> Counter[str]:
    """Produce all messages of the shop, in order, to partition 0. Returns how many each table has (the empty
    name is the database itself). Raises KafkaException.

    The topic must be new, so that a message's number is its offset."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,  # without it, a retried batch may overtake another
            "linger.ms": 20,
            "compression.type": "lz4",
            "log_level": 3,  # a new broker's first refusals need no log; failures are raised below
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    played = Counter[str]()
    for message in shop.messages():
        producer.produce(topic, message.value, partition=0, on_delivery=delivered)
        played[message.table] += 1
        producer.poll(0)
    if producer.flush(_FLUSH_SECONDS):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka does not accept the shop's changes"))
    if failed:
        raise KafkaException(failed[0])
    return played


def now_ms() -> int:
    return time.time_ns() // 1_000_000
