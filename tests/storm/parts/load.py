"""What the source sends: numbered records of many tables, at a steady rate, each with its time."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from confluent_kafka import KafkaError, KafkaException, Message, Producer

__all__ = ["Load", "Table"]

_TYPES = {"id": "bigint", "seq": "bigint", "name": "varchar(64)"}


@dataclass(slots=True)
class Table:
    """`rows`: it has at most so many ids, changed in turn; 0: each record inserts one of its own."""

    name: str
    topic: str
    partition: int
    rows: int = 0
    sent: int = 0
    """Its next sequence: they begin at 0."""

    @property
    def full_name(self) -> str:
        return f"shop.{self.name}"

    def expected(self) -> dict[int, int]:
        """{id: sequence of its last change}."""
        first = max(0, self.sent - self.rows) if self.rows else 0
        return {seq % self.rows if self.rows else seq: seq for seq in range(first, self.sent)}


class Load:
    """Sends `rate` records a second, in a thread of its own, from `start` to `stop`, for tables in turn.

    A record is sent to its table's partition, whatever other partitions the topic gets. The producers, one a
    topic, are idempotent and do not give up: what was not taken when it stopped is an AssertionError.
    """

    def __init__(self, servers: str, tables: list[Table], rate: float, seed: int) -> None:
        # Long enough for any fault; a record that is given up would be a gap of the source.
        self._settings = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "delivery.timeout.ms": 600_000,
            "log_level": 2,
            "topic.metadata.refresh.interval.ms": 2000,
        }
        self._producers: dict[str, Producer] = {}
        self._rate, self._random = rate, Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="load")
        self.tables = tables
        self._sending = threading.Lock()  # guards the producers and the two below against who pauses a topic
        self._paused: set[str] = set()
        self._on_its_way: Counter[str] = Counter()
        self.failed: list[str] = []

    @property
    def sent(self) -> int:
        return sum(table.sent for table in self.tables)

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: float = 120) -> None:
        """Nothing more is sent, and Kafka has all of it. Raises AssertionError."""
        self._stop.set()
        self._thread.join()
        deadline = time.monotonic() + within
        for topic, producer in self._producers.items():
            left = producer.flush(max(0.1, deadline - time.monotonic()))
            assert left == 0, f"Kafka did not take every record: {left} of {topic} are left"
        assert not self.failed, self.failed[:3]

    def end(self) -> None:
        """Nothing more is sent, whatever Kafka has taken."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def paused(self, topic: str) -> Iterator[None]:
        """Nothing is sent into this topic meanwhile, and what was sent has arrived. Then it gets a producer
        anew: of one whose topic was made anew librdkafka 2.16 may never send again.
        """
        with self._sending:
            self._paused.add(topic)
        try:
            deadline = time.monotonic() + 120
            while left := self._on_its_way[topic]:
                assert time.monotonic() < deadline, (
                    f"Kafka did not take every record: {left} of {topic} are left"
                )
                time.sleep(0.05)
            yield
            with self._sending:
                self._producers.pop(topic, None)
        finally:
            self._paused.discard(topic)

    def _send_all(self) -> None:
        try:
            self._send_in_turn()
        except Exception as fault:
            self.failed.append(f"the source has ended: {fault}")
            raise

    def _send_in_turn(self) -> None:
        begin, number = time.monotonic(), 0
        while True:
            due = begin + number / self._rate
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            number += 1
            table = self._random.choice(self.tables)
            with self._sending:
                if table.topic not in self._paused:
                    self._send(table)
                for producer in self._producers.values():
                    producer.poll(0)

    def _send(self, table: Table) -> None:
        now, seq = time.time_ns() // 1_000_000, table.sent
        is_new = not table.rows or seq < table.rows
        row = seq % table.rows if table.rows else seq
        value = {
            "data": [{"id": str(row), "seq": str(seq), "name": f"row {row}"}],
            "old": None if is_new else [{"seq": str(seq - table.rows)}],
            "type": "INSERT" if is_new else "UPDATE",
            "database": "shop",
            "table": table.name,
            "es": now,
            "ts": now,
            "id": seq,
            "isDdl": False,
            "mysqlType": _TYPES,
            "pkNames": ["id"],
            "sql": "",
        }
        if table.topic not in self._producers:
            self._producers[table.topic] = Producer(self._settings)
        producer = self._producers[table.topic]
        while not self._stop.is_set():
            try:
                producer.produce(
                    table.topic,
                    json.dumps(value).encode(),
                    table.name.encode(),
                    table.partition,
                    on_delivery=self._delivered,
                )
            except BufferError:
                producer.poll(0.1)
            except KafkaException as fault:
                if fault.args[0].code() not in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
                    raise
                return  # it has just been made, and the producer has not heard of it yet
            else:
                table.sent += 1
                self._on_its_way[table.topic] += 1
                return

    def _delivered(self, fault: KafkaError | None, message: Message) -> None:
        self._on_its_way[message.topic() or ""] -= 1  # in the sender's thread: it polls
        if fault is not None:
            self.failed.append(f"{message.topic()}[{message.partition()}]: {fault}")
