"""Plays the source: Canal records of numbered rows, in a topic of a real broker."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Producer

__all__ = ["Source", "canal_insert"]


def canal_insert(table: str, seqs: Sequence[int], database: str = "shop") -> bytes:
    """One flat Canal message that inserts a row for each number."""
    return json.dumps(
        {
            "data": [{"id": str(seq), "seq": str(seq), "name": f"row {seq} of {table}"} for seq in seqs],
            "database": database,
            "es": 1795218962000,
            "gtid": "",
            "id": 1,
            "isDdl": False,
            "mysqlType": {"id": "bigint", "seq": "bigint", "name": "varchar(64)"},
            "old": None,
            "pkNames": ["id"],
            "sql": "",
            "sqlType": {"id": -5, "seq": -5, "name": 12},
            "table": table,
            "ts": 1795218962123,
            "type": "INSERT",
        }
    ).encode()


class Source:
    """Inserts rows into tables named t0, t1 ... and remembers them: `rows` is {"shop.t0": [0, 1, 2 ...]}.

    The rows of a table are numbered from 0 in the order they are sent, and go to one partition.
    """

    def __init__(self, bootstrap_servers: str, topic: str, *, transactional_id: str | None = None) -> None:
        # Without idempotence a retried batch overtakes the next one on a new topic.
        settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
        if transactional_id:
            settings["transactional.id"] = transactional_id
        self.producer = Producer(settings)
        self.topic = topic
        self.rows: dict[str, list[int]] = defaultdict(list)
        self._next: dict[str, int] = defaultdict(int)
        if transactional_id:
            self.producer.init_transactions(30)

    @contextmanager
    def going_on(self, change: Callable[[], None], every: float) -> Iterator[None]:
        """Meanwhile `change` is called every so many seconds; afterwards Kafka has all of it."""
        closed = threading.Event()

        def sell() -> None:
            while not closed.wait(every):
                change()

        thread = threading.Thread(target=sell, name="shop")
        thread.start()
        try:
            yield
        finally:
            closed.set()
            thread.join()
            self.flush()

    def insert(self, table: str, rows: int = 1, *, partition: int = -1, records: int = 1) -> None:
        """Send `records` messages of `rows` rows each."""
        for _ in range(records):
            first = self._next[table]
            self._next[table] += rows
            seqs = range(first, first + rows)
            self.send(canal_insert(table, seqs), key=table.encode(), partition=partition)
            self.rows[f"shop.{table}"].extend(seqs)

    def insert_and_abort(self, table: str, records: int) -> None:
        """Rows that no reader of committed data may see: they are not remembered."""
        self.producer.begin_transaction()
        for number in range(records):
            self.send(canal_insert(table, [1_000_000 + number]), key=table.encode())
        self.producer.flush()
        self.producer.abort_transaction(30)

    def send(self, value: bytes | None, *, key: bytes | None = None, partition: int = -1) -> None:
        """Any record. Partition -1: by the key."""
        while True:
            try:
                self.producer.produce(self.topic, value, key, partition)
            except BufferError:
                self.producer.poll(0.1)
            else:
                return

    def flush(self) -> None:
        assert self.producer.flush(60) == 0, "the broker did not take every record"

    @property
    def count(self) -> int:
        return sum(len(rows) for rows in self.rows.values())
