"""Parts of a worker for tests: records, tables, units, assignments; a handler that does as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

from confluent_kafka import Message

from handlers import Batch, Handler
from offsets.restore import Start
from offsets.types import OffsetRange, TopicPartition
from worker.attempts.circuit import BoundHandler
from worker.attempts.retry_and_split import HandlerRun
from worker.configuration import Configuration
from worker.formats.interface import Format, Record
from worker.formats.registry import get
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.delivery import Delivery
from worker.units.table import Table
from worker.units.unit import Unit
from worker.units.work import Work

__all__ = [
    "TOPIC",
    "Clock",
    "Scripted",
    "assignment",
    "chunk",
    "configuration",
    "ddl",
    "delivery",
    "record",
    "runs_of",
    "seen",
    "unit",
    "work",
]

TOPIC = "cdc.shop"

Script = Callable[[Batch], object]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scripted(Handler):
    """Notes each batch, then does what `script` says with it."""

    def __init__(self, script: Script = lambda _: None) -> None:
        self.script = script
        self.calls: list[tuple[int, list[tuple[int, int]]]] = []
        """For each call the attempt and the (offset, index) of its changes."""
        self.batches: list[Batch] = []
        self.closed = threading.Event()

    def handle(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.calls.append((batch.attempt, [(c.offset, c.index) for c in batch.changes]))
        self.script(batch)

    def close(self) -> None:
        self.closed.set()


def seen(handler: Scripted) -> list[list[int]]:
    """The offsets of each call of the handler."""
    return [[offset for offset, _ in changes] for _, changes in handler.calls]


def record(
    offset: int,
    table: str = "orders",
    database: str = "shop",
    *,
    rows: int = 1,
    partition: int = 0,
    value: bytes | Literal["canal"] | None = "canal",
    headers: list[tuple[str, bytes]] | None = None,
    **fields: Any,
) -> Record:
    """A record as the consumer gives it: Canal's insert of so many rows, or any other value."""
    if value == "canal":
        message = {
            "database": database,
            "table": table,
            "type": "INSERT",
            "isDdl": False,
            "es": 1_763_000_000_000 + offset,
            "data": [{"id": str(offset * 100 + row)} for row in range(rows)],
            "mysqlType": {"id": "bigint"},
            "pkNames": ["id"],
        }
        value = json.dumps(message | fields).encode()
    made = Message(topic=TOPIC, partition=partition, offset=offset, value=value, headers=headers)
    return cast(Record, made)


def ddl(offset: int, table: str = "orders", database: str = "shop", *, partition: int = 0) -> Record:
    fields: dict[str, Any] = {
        "isDdl": True,
        "type": "ALTER",
        "sql": f"ALTER TABLE {table} ADD x int",
        "data": None,
    }
    return record(offset, table, database, partition=partition, **fields)


def configuration(*tables: dict[str, Any], **sections: Any) -> Configuration:
    """A configuration with these table rules (default: one for all tables)."""
    return Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:9", "group_id": "test", "topics": [TOPIC]},
            "tables": [{"match": "*", "handlers": [{"type": "log"}], **rule} for rule in tables or ({},)],
            **sections,
        }
    )


def unit(
    name: str = "orders",
    *handlers: Handler,
    lane: int = 0,
    batch: dict[str, Any] | None = None,
    retry: dict[str, Any] | None = None,
    on_failure: str = "halt",
) -> Unit:
    """A table of `shop` with these handlers, named h0, h1 ..."""
    rule = configuration({"batch": batch or {}, "retry": retry or {}, "on_failure": on_failure}).tables[0]
    bound = [BoundHandler(f"h{place}", (handler,)) for place, handler in enumerate(handlers or (Scripted(),))]
    return Unit(Table("shop", name, rule, bound), lane)


def assignment(
    partition: int = 0,
    start: int | None = 0,
    restored: Iterable[OffsetRange] = (),
    format_: Format | None = None,
) -> Assignment:
    begin = Start("earliest" if start is None else start, tuple(restored), "initial", "a test")
    return Assignment(TopicPartition(TOPIC, partition), 1, begin, format_ or get("canal"))


def chunk(of: Assignment, records: Sequence[Record], *, alone: bool = False) -> Chunk:
    """The records as one poll of the partition."""
    run = of.tracker.register([each.offset() for each in records])
    return Chunk(of, run, list(records), alone=alone)


def delivery(*parts: tuple[Unit, Chunk]) -> Delivery:
    made = Delivery()
    for of, piece in parts:
        made.add(of, piece)
    return made


def work(of: Unit, *chunks: Chunk) -> Work:
    return Work.of(of, list(chunks))


def runs_of(batch: Work) -> list[HandlerRun]:
    """A run for each handler of the batch's table, at its beginning; the batch is decoded."""
    assert batch.decode(lambda _record, _fault: False) is None
    return [HandlerRun(handler, 0, batch.total) for handler in batch.unit.table.handlers]
