"""The row changes of the known workload, as each captured stream has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from captured import CapturedRecord, records
from dts_records import dts_stream
from memory_replica import decode
from truth_rows import Row

from worker.formats import registry
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import Format, SeparateDDL, Skip

__all__ = ["Event", "events", "reader"]


class Event(NamedTuple):
    """A row change, without what belongs to its tool: topics, offsets, transactions, times of capture."""

    op: str
    key_columns: tuple[str, ...] | None
    before: Row | None
    after: Row | None
    types: Mapping[str, str] | None


def reader(stream: str) -> Format:
    """As the worker has it: where DDL has a topic of its own, it was read to its end before the first row."""
    settings = DebeziumSettings(binary="hex", decimals="string") if stream == "debezium-strings" else None
    format_ = registry.get(stream.partition("-")[0], debezium=settings)
    if isinstance(format_, SeparateDDL):
        for record in ddl_of(stream):
            format_.learn(record)
    return format_


def ddl_of(stream: str) -> Iterator[CapturedRecord]:
    # Of these two connectors the schema changes were not captured; that of the plain stream saw the same.
    name = {"debezium-strings": b"my3", "debezium-unwrap": b"my4"}.get(stream)
    if name is None:
        yield from records(stream)
        return
    for record in records("debezium-plain"):
        value = (record.value_ or b"").replace(b'"name":"my2"', b'"name":"%s"' % name)
        yield replace(record, value_=value)


def in_source_order(format_: Format, stream: str) -> list[CapturedRecord]:
    """Of one partition, or of one for each table, they come so; else by their places in the source's log."""
    captured = dts_stream() if stream == "dts" else records(stream)
    if not isinstance(format_, SeparateDDL) or stream not in ("debezium-plain", "debezium-strings"):
        return captured
    placed = [(place, record) for record in captured if (place := format_.log_position(record)) is not None]
    # A change of a key is two records of one place, which may be in different partitions.
    return [
        r
        for _, r in sorted(placed, key=lambda one: (one[0].order, b'"op":"d"' not in (one[1].value_ or b"")))
    ]


@cache
def events(stream: str) -> dict[str, list[Event]]:
    """Table -> its row changes, in the source's order."""
    format_ = reader(stream)
    found: dict[str, list[Event]] = defaultdict(list)
    for record in in_source_order(format_, stream):
        route = format_.explain(record)
        if isinstance(route, Skip):
            continue
        for change in decode(format_, record):
            if change.op not in ("ddl", "truncate"):
                found[f"{route.database}.{route.table}"].append(
                    Event(change.op, change.key_columns, change.before, change.after, change.types)
                )
    return dict(found)
