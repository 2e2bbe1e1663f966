"""The captured streams as topics of a real Kafka: names, partitions, offsets, keys, headers and times as they
were captured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from captured import STREAMS, CapturedRecord, records
from confluent_kafka import Producer
from dts_records import dts_stream

from worker.local.broker import Broker

__all__ = ["ALL_STREAMS", "Source", "delivered", "put"]

ALL_STREAMS = (*STREAMS, "dts")

# Stream -> (topics, topics with DDL, format)
_KAFKA: dict[str, tuple[list[str], list[str], Any]] = {
    "canal": (["canal"], [], "canal"),
    "canal-packets": (["canal-packets"], [], "canal"),
    "debezium-schemas": ([r"^(__debezium-heartbeat\.)?my1(\..*)?$"], ["my1"], "debezium"),
    "debezium-plain": ([r"^my2(\..*)?$"], ["my2"], "debezium"),
    "debezium-strings": ([r"^my3\..*$"], [], "debezium"),
    "debezium-unwrap": ([r"^my4\..*$"], [], "debezium"),
    "maxwell": (["maxwell", "maxwell_ddl"], ["maxwell_ddl"], "maxwell"),
    "dts": (["dts"], [], "dts"),
    # Transactions' marks are no DDL: named so, truncates are put in their place between all partitions.
    "postgres-plain": ([r"^pg1(\..*)?$"], ["pg1.transaction"], "debezium"),
}
_TWICE = "twice-"


@dataclass(frozen=True)
class Source:
    """A stream that lies in Kafka."""

    stream: str
    ends: dict[tuple[str, int], int]
    """(topic, partition) -> its end."""
    twice: bool

    @property
    def kafka(self) -> dict[str, list[str]]:
        """What a configuration says of its topics."""
        topics, ddl_topics, _ = _KAFKA[self.stream]
        return {"topics": list(map(self._named, topics)), "ddl_topics": list(map(self._named, ddl_topics))}

    @property
    def format(self) -> Any:
        return _KAFKA[self.stream][2]

    def _named(self, topic: str) -> str:
        if not self.twice:
            return topic
        return f"^{_TWICE}{topic[1:]}" if topic.startswith("^") else f"{_TWICE}{topic}"


def delivered(stream: str, *, twice: bool = False) -> list[CapturedRecord]:
    """A stream's records as they lie in Kafka when they were put there."""
    found = dts_stream() if stream == "dts" else records(stream)
    if twice:
        found = [_renamed(record) for record in found for _ in range(2)]
    ends: Counter[tuple[str, int]] = Counter()
    placed = []
    for record in found:
        place = (record.topic(), record.partition())
        placed.append(replace(record, offset_=ends[place]))
        ends[place] += 1
    return placed


def put(broker: Broker, stream: str, *, twice: bool = False) -> Source:
    """Write a stream's records, in their order; `twice`: each two times in a row, to topics of its own."""
    found = delivered(stream, twice=twice)
    partitions: dict[str, int] = {}
    for record in found:
        partitions[record.topic()] = max(partitions.get(record.topic(), 0), record.partition() + 1)
    for topic, count in partitions.items():
        # The records are old: Kafka would delete them at once.
        broker.create_topic(topic, count, retention_ms="-1")
    return Source(stream, _write(broker.bootstrap_servers, found), twice)


def _renamed(record: CapturedRecord) -> CapturedRecord:
    return replace(record, topic_=_TWICE + record.topic_)


def _write(servers: str, found: Sequence[CapturedRecord]) -> dict[tuple[str, int], int]:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    ends: dict[tuple[str, int], int] = {}
    for record in found:
        producer.produce(
            record.topic(),
            record.value(),
            record.key(),
            record.partition(),
            timestamp=record.timestamp_ms,
            headers=record.headers(),
        )
        place = (record.topic(), record.partition())
        ends[place] = ends.get(place, 0) + 1
        producer.poll(0)
    assert producer.flush(30) == 0
    return ends
