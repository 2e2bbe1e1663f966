"""The benchmarks' topics: Canal flat JSON, keyed by `database.table`, the same records in every run.

`id` (the first field of a message and the first column of its row) is the record's number within its table,
`n` (the last column) its number within the topic. Tables are drawn uniformly with a fixed seed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

__all__ = ["SLOW_RECORD", "TopicSpec", "canal_value", "ideal_seconds", "micros", "produce"]

SLOW_RECORD = 5
"""The record that blocks in the benchmarks of a stuck record."""

_TEXT = (
    '{"id":%d,"database":"shop","table":"t%d","pkNames":["id"],"isDdl":false,"type":"INSERT",'
    '"es":1763000000000,"ts":1763000000123,"sql":"",'
    '"sqlType":{"id":-5,"name":12,"amount":3,"created":93,"n":-5},'
    '"mysqlType":{"id":"bigint","name":"varchar(64)","amount":"decimal(10,2)","created":"datetime","n":"bigint"},'
    '"data":[{"id":"%d","name":"customer-%08d, 1234 Long Winding Street, Springfield","amount":"%d.50",'
    '"created":"2026-11-20 10:00:00.000","n":"%d"}],"old":null}'
)
_SEED = 7


@dataclass(frozen=True)
class TopicSpec:
    """The content of a topic. The topic's name contains the same, so an existing topic is found again."""

    records: int
    tables: int
    partitions: int = 1
    slow_alone: bool = False
    """The slow record has its own table, so every other record can finish."""

    @property
    def name(self) -> str:
        alone = "-alone" if self.slow_alone else ""
        return f"bench-{self.records}-{self.tables}-{self.partitions}{alone}"

    def table_numbers(self) -> Iterator[int]:
        """The table of each record, in order."""
        pick = random.Random(_SEED).randrange
        for n in range(self.records):
            table = pick(self.tables)
            yield self.tables if self.slow_alone and n == SLOW_RECORD else table


def micros(n: int) -> int:
    """The sleep of record n in microseconds, uniform in 0 to 5,000: the same as micros() in Bench.java."""
    x = (n * 2654435761 + 12345) & 0xFFFFFFFF
    x ^= x >> 16
    x = (x * 0x45D9F3B) & 0xFFFFFFFF
    x ^= x >> 16
    return x % 5001


def ideal_seconds(spec: TopicSpec, workers: int) -> float:
    """Return the shortest time for `spec` with random sleeps, if each table keeps its order."""
    sums: dict[int, int] = {}
    for n, table in enumerate(spec.table_numbers()):
        sums[table] = sums.get(table, 0) + micros(n)
    return max(*sums.values(), sum(sums.values()) / workers) / 1e6


def produce(bootstrap: str, spec: TopicSpec) -> float:
    """Write the topic unless it exists completely. Return the seconds, about 15 s per million records.

    Raises KafkaException if the broker refuses.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if spec.name in admin.list_topics(timeout=30).topics:
        if _count(bootstrap, spec) == spec.records:
            return 0.0
        admin.delete_topics([spec.name])[spec.name].result(30)  # an earlier run ended while it wrote
        _wait_until_gone(admin, spec.name)
    topic = NewTopic(spec.name, spec.partitions, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[spec.name].result(30)
    begin = time.monotonic()
    _write(bootstrap, spec)
    return time.monotonic() - begin


def canal_value(n: int, table: int, sequence: int) -> bytes:
    """The n-th record of a topic, 445 to 480 bytes."""
    return (_TEXT % (sequence, table, sequence, n, n % 1000, n)).encode()


def _write(bootstrap: str, spec: TopicSpec) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 200_000,
            "queue.buffering.max.messages": 200_000,
            "partitioner": "murmur2_random",
            "log_level": 3,  # a loading coordinator is no error
            # Without it a retried batch overtakes the next one on a new topic, and the order is lost.
            "enable.idempotence": True,
        }
    )
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    sequences = [0] * (spec.tables + 1)
    keys = [b"shop.t%d" % table for table in range(spec.tables + 1)]
    for n, table in enumerate(spec.table_numbers()):
        sequence = sequences[table]
        sequences[table] = sequence + 1
        value = canal_value(n, table, sequence)
        while True:
            try:
                producer.produce(spec.name, value, keys[table], on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        if n % 1000 == 0:
            producer.poll(0)
    if producer.flush(120) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))


def _count(bootstrap: str, spec: TopicSpec) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-count"})
    try:
        marks = [
            consumer.get_watermark_offsets(TopicPartition(spec.name, partition, OFFSET_END), timeout=30)
            for partition in range(spec.partitions)
        ]
    finally:
        consumer.close()
    return sum(high - low for low, high in marks)


def _wait_until_gone(admin: AdminClient, name: str) -> None:
    deadline = time.monotonic() + 30
    while name in admin.list_topics(timeout=30).topics and time.monotonic() < deadline:
        time.sleep(0.2)
