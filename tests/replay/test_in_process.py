"""Every record of a stream through the format and the handler, without Kafka and the worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from captured import CapturedRecord, records
from differences import CAPTURED, expected
from dts_records import dts_stream
from replica import Replica

from handlers import Batch, Change, HandlerContext
from handlers.sql.handler import SqlHandler
from worker.formats import registry
from worker.formats.interface import SeparateDDL, Skip

_BATCH = 50


def in_source_order(format_: object, found: list[CapturedRecord]) -> list[CapturedRecord]:
    """As the worker merges partitions where DDL has a topic of its own."""
    if not isinstance(format_, SeparateDDL):
        return found
    for record in found:
        format_.learn(record)
    placed = [(place.order, record) for record in found if (place := format_.place(record)) is not None]
    return [record for _, record in sorted(placed, key=lambda one: one[0])]


def batches(stream: str, format_name: str) -> Iterator[Batch]:
    """DDL alone, after all rows before it."""
    format_ = registry.get(format_name)
    found = dts_stream() if stream == "dts" else records(stream)
    waiting: dict[tuple[str, str], list[Change]] = {}
    for record in in_source_order(format_, found):
        try:
            route = format_.route(record.value() or b"")
        except Exception:
            route = None
        if route is None or not (route.database and route.table):
            explained = format_.explain(record)
            if isinstance(explained, Skip):
                continue
            route = explained
        changes: list[Change] = []
        format_.decode(record, changes)
        name = (route.database, route.table)
        if route.database not in ("shop", "crm"):
            continue
        if route.alone:
            yield from (made(*one) for one in waiting.items())
            waiting.clear()
            yield made(name, changes)
            continue
        waiting.setdefault(name, []).extend(changes)
        if len(waiting[name]) >= _BATCH:
            yield made(name, waiting.pop(name))
    yield from (made(*one) for one in waiting.items())


def made(name: tuple[str, str], changes: list[Change]) -> Batch:
    return Batch(".".join(name), changes, database=name[0], name=name[1])


STREAMS = [
    ("canal", "canal"),
    ("debezium-schemas", "debezium"),
    ("debezium-plain", "debezium"),
    ("debezium-strings", "debezium"),
    ("debezium-unwrap", "debezium"),
    ("maxwell", "maxwell"),
    ("dts", "dts"),
]


@pytest.mark.parametrize(("stream", "format_name"), STREAMS, ids=[one[0] for one in STREAMS])
def test_a_stream_leaves_the_rows_of_its_source(stream: str, format_name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'replica.db'}"
    handler = SqlHandler(url=url)
    handler.open(HandlerContext(worker="replay", handler="sql", folder=tmp_path))
    for batch in batches(stream, format_name):
        handler.handle(batch)
    handler.close()
    assert Replica(url).differences(CAPTURED.get(stream)) == expected(stream, "sqlite")
