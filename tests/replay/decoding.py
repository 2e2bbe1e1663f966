"""The changes of a captured stream, without Kafka and the worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from captured import CapturedRecord, records
from dts_records import dts_stream

from handlers import Batch, Change
from worker.formats import registry
from worker.formats.interface import Format, SeparateDDL, Skip, UndecodableRecord

__all__ = ["STREAMS", "batches", "batches_of", "in_source_order"]

STREAMS = [
    ("canal", "canal"),
    ("debezium-schemas", "debezium"),
    ("debezium-plain", "debezium"),
    ("debezium-strings", "debezium"),
    ("debezium-unwrap", "debezium"),
    ("maxwell", "maxwell"),
    ("dts", "dts"),
]
"""(stream, its format)."""
_BATCH = 50


def in_source_order(format_: object, found: Sequence[CapturedRecord]) -> Sequence[CapturedRecord]:
    """As the worker merges partitions where DDL has a topic of its own."""
    if not isinstance(format_, SeparateDDL):
        return found
    for record in found:
        format_.learn(record)
    placed = [
        (place.order, record) for record in found if (place := format_.log_position(record)) is not None
    ]
    return [record for _, record in sorted(placed, key=lambda one: one[0])]


def batches(
    stream: str, format_name: str, delivered: Sequence[CapturedRecord] | None = None
) -> Iterator[Batch]:
    """DDL alone, after all rows before it. `delivered`: instead of the stream's records as they are."""
    format_ = registry.get(format_name)
    found = delivered or (dts_stream() if stream == "dts" else records(stream))
    return batches_of(format_, in_source_order(format_, found), ("shop", "crm"))


def batches_of(
    format_: Format,
    found: Sequence[CapturedRecord],
    databases: Sequence[str],
    refused: list[str] | None = None,
) -> Iterator[Batch]:
    """`refused` takes what undecodable records are told to be; without it they are errors."""
    waiting: dict[tuple[str, str], list[Change]] = {}
    for record in found:
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
        try:
            format_.decode(record, changes)
        except UndecodableRecord as error:
            if refused is None:
                raise
            refused.append(f"{route.database}.{route.table}: {error}")
            continue
        name = (route.database, route.table)
        if route.database not in databases:
            continue
        if route.alone:
            yield from (_made(*one) for one in waiting.items())
            waiting.clear()
            yield _made(name, changes)
            continue
        waiting.setdefault(name, []).extend(changes)
        if len(waiting[name]) >= _BATCH:
            yield _made(name, waiting.pop(name))
    yield from (_made(*one) for one in waiting.items())


def _made(name: tuple[str, str], changes: list[Change]) -> Batch:
    return Batch(".".join(name), changes, database=name[0], name=name[1])
