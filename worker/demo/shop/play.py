"""Send the shop's stream to Kafka."""

from __future__ import annotations

import time
from collections import Counter

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from worker.demo.shop.changes import Shop

_FLUSH_SECONDS = 60


class Played(Counter[str]):
    """Records of each table. The empty name is the database itself."""


def play(shop: Shop, bootstrap_servers: str, topic: str) -> Played:
    """Produce all messages of the shop, in order, to partition 0. Raises KafkaException.

    The topic must be new, so that a message's number is its offset.
    """
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
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
    played = Played()
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
