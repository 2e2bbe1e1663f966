"""What a topic holds."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

__all__ = ["Seen", "read", "settings_of"]


class Seen(NamedTuple):
    partition: int
    key: Any
    """Decoded; None for a message without one."""
    value: Any
    """Decoded; None for a tombstone."""
    headers: dict[str, str]


def settings_of(servers: str) -> dict[str, Any]:
    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False}
    return settings | {"fetch.wait.max.ms": 10}  # a look at an empty partition would wait half a second


def read(servers: str, topic: str) -> list[Seen]:
    """All messages, each partition in its order."""
    consumer = Consumer(settings_of(servers))
    try:
        seen = []
        for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            place = TopicPartition(topic, number, 0)
            end = consumer.get_watermark_offsets(place, timeout=10)[1]
            consumer.assign([place])
            offset = -1
            while offset < end - 1:
                message = consumer.poll(10)
                assert message is not None, f"{topic}[{number}] ends before {end}"
                assert message.error() is None, message.error()
                offset = message.offset()
                seen.append(
                    Seen(
                        number,
                        _decoded(message.key()),
                        _decoded(message.value()),
                        {name: (value or b"").decode() for name, value in message.headers() or ()},
                    )
                )
        return seen
    finally:
        consumer.close()


def _decoded(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)
