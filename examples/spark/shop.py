"""A shop at work, for pipeline.yaml: python examples/spark/shop.py [--changes N] [--rate N]

Its orders come as Canal sends them, its payments, from a database of their own, as Debezium does, and a
heartbeat four times a second, by which freshness.py sees how far behind a table is.
"""

from __future__ import annotations

import argparse
import base64
import logging
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from worker.demo.shop_changes import Shop
from worker.demo.shop_source import Column, SourceDatabase, SourceTable

SHOP = "example.shop"
BILLING = "example-billing.billing.payments"
BEAT_SECONDS = 0.25
QUIET = logging.Logger("shop", level=logging.CRITICAL)  # librdkafka would log each attempt to connect

Record = tuple[str, bytes | None, bytes]
"""Topic, key, value."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--bootstrap", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or "localhost:9092"
    )
    arguments.add_argument("--changes", type=int, default=50_000)
    arguments.add_argument("--rate", type=int, default=500, help="changes a second")
    arguments.add_argument("--seed", type=int, default=7, help="another day")
    options = arguments.parse_args()
    try:
        make_topics(options.bootstrap)
        # Without idempotence a batch that is sent again overtakes the next one.
        settings = {"bootstrap.servers": options.bootstrap, "enable.idempotence": True}
        producer = Producer(settings, logger=QUIET)
        sent = 0
        for topic, key, value in records(
            Shop(options.changes, seed=options.seed, clock=now_ms), options.rate
        ):
            producer.produce(topic, value, key, 0)
            producer.poll(0)
            sent += 1
        if producer.flush(30):
            raise SystemExit("shop.py: Kafka does not take the shop's changes")
    except KafkaException as error:
        raise SystemExit(f"shop.py: Kafka at {options.bootstrap}: {error.args[0].str()}") from None
    print(f"{sent:,} records sent to {SHOP} and {BILLING}")


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET)
    there = admin.list_topics(timeout=5).topics
    if missing := [NewTopic(topic, 1) for topic in (SHOP, BILLING) if topic not in there]:
        for made in admin.create_topics(missing).values():
            made.result()


def records(shop: Shop, rate: int) -> Iterator[Record]:
    """What happens, when it happens."""
    heart = Heart()
    began, opened = time.monotonic(), 0
    for number, message in enumerate(shop.messages()):
        if number == 0:
            opened = shop.changes  # those of the first day are there at once
        yield from heart.beats()
        if message.table == "payments":
            yield debezium(msgspec.json.decode(message.value), number)
        else:
            yield SHOP, None, message.value
        while (early := (shop.changes - opened) / rate - (time.monotonic() - began)) > 0:
            time.sleep(min(early, BEAT_SECONDS))
            yield from heart.beats()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# ---- the heartbeat


class Heart:
    """A table with one row that tells the time, in the stream of all others."""

    def __init__(self) -> None:
        columns = [Column("id", "int"), Column("at", "timestamp(3)")]
        self._source = SourceDatabase("shop", [SourceTable("heartbeat", ["id"], columns)], now_ms)
        self._next = 0.0

    def beats(self) -> Iterator[Record]:
        """The next one, if its time has come."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + BEAT_SECONDS
            now = datetime.fromtimestamp(now_ms() / 1000, UTC)
            if self._source.tables["heartbeat"].rows:
                self._source.update("heartbeat", {(1,): {"at": now}})
            else:
                self._source.insert("heartbeat", {"id": 1, "at": now})
            for message in self._source.take():
                yield SHOP, None, message.value


# ---- payments as Debezium sends them


def debezium(message: Mapping[str, Any], place: int) -> Record:
    """Canal's message about one row of `payments`, as a record with schemas."""
    after = payment(message, {})
    before = payment(message, message["old"][0]) if message["old"] else None
    source = {
        **{"version": "3.5.0.Final", "connector": "mysql", "name": "example-billing", "db": "billing"},
        **{"table": "payments", "ts_ms": message["ts"], "snapshot": "false", "server_id": 1, "gtid": None},
        **{"file": "mysql-bin.000001", "pos": place, "row": 0},
    }
    operation = {"INSERT": "c", "UPDATE": "u"}[message["type"]]
    payload = {"before": before, "after": after, "source": source, "op": operation, "ts_ms": message["ts"]}
    key = {"schema": KEY, "payload": {"id": after["id"]}}
    value = {"schema": ENVELOPE, "payload": payload}
    return BILLING, msgspec.json.encode(key), msgspec.json.encode(value)


def payment(message: Mapping[str, Any], old: Mapping[str, str | None]) -> dict[str, Any]:
    """A row; `old`: the columns of it that were otherwise before."""
    row, settled = {**message["data"][0], **old}, None
    labels = {name: options.split(",") for name, options in ENUMS.items()}
    cents = int(Decimal(row["amount"]).scaleb(2))
    if row["settled_at"] is not None:
        settled = row["settled_at"].replace(" ", "T") + "Z"
    return {
        "id": int(row["id"]),
        "order_id": int(row["order_id"]),
        "method": labels["method"][int(row["method"]) - 1],
        "state": labels["state"][int(row["state"]) - 1],
        "amount": base64.b64encode(cents.to_bytes(8, "big", signed=True)).decode(),
        "settled_at": settled,
    }


ENUMS = {"method": "card,transfer,invoice,voucher", "state": "open,settled,refunded"}


def column(name: str, type_: str, of: str | None = None, **parameters: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": type_, "optional": name != "id", "field": name}
    if of is not None:
        schema |= {"name": of, "version": 1, "parameters": parameters}
    return schema


def struct(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": True, "name": f"{BILLING}.{name}"}


ROW = struct(
    "Value",
    column("id", "int64"),
    column("order_id", "int64"),
    column("method", "string", "io.debezium.data.Enum", allowed=ENUMS["method"]),
    column("state", "string", "io.debezium.data.Enum", allowed=ENUMS["state"]),
    column(
        *("amount", "bytes", "org.apache.kafka.connect.data.Decimal"),
        **{"scale": "2", "connect.decimal.precision": "12"},
    ),
    column("settled_at", "string", "io.debezium.time.ZonedTimestamp"),
)
KEY = struct("Key", column("id", "int64"))
ENVELOPE = struct(
    "Envelope",
    ROW | {"field": "before"},
    ROW | {"field": "after"},
    struct("Source", column("db", "string"), column("table", "string")) | {"field": "source"},
    column("op", "string"),
    column("ts_ms", "int64"),
)


if __name__ == "__main__":
    main()
