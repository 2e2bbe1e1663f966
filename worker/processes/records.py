"""Records of the worker that a child process makes again."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from itertools import groupby, repeat
from typing import Any, cast

from confluent_kafka import Message

from handlers import Batch
from worker.configuration import TableRule
from worker.formats.interface import Record, any_headers
from worker.units.chunk import Chunk

# Called through the class, which saves a look-up for each record.
_FIELDS: Any = (Message.offset, Message.key, Message.value)
_timestamp: Any = Message.timestamp


def packed(records: Sequence[Record]) -> tuple[Any, ...]:
    """Return what another process needs to make these records of a partition again. No headers (None): no
    record has any."""
    headers = list(map(any_headers, records))
    kinds, times = zip(*map(_timestamp, records), strict=True)
    columns = (list(map(field, records)) for field in _FIELDS)
    return *columns, headers if any(headers) else None, kinds, times


def made(topic: str, partition: int, columns: Sequence[Any]) -> list[Record]:
    """Make packed records."""
    offsets, keys, values, headers, kinds, times = columns
    known = repeat(None) if headers is None else [each and list(map(tuple, each)) for each in headers]
    of = repeat(topic), repeat(partition), offsets, keys, values, known, repeat(None)
    return cast(list[Record], list(map(cast(Any, Message), *of, zip(kinds, times, strict=True))))


def packed_chunks(chunks: Iterable[Chunk]) -> list[tuple[Any, ...]]:
    """Join what several polls have brought of one partition: each chunk costs time in the child."""
    found = []
    for (assignment, alone), some in groupby(chunks, lambda chunk: (chunk.assignment, chunk.alone)):
        records = [record for chunk in some for record in chunk.messages]
        found.append((*assignment.partition, assignment.topic_id, alone, *packed(records)))
    return found


def packed_rows(batch: Batch, rule: TableRule) -> bytes:
    """Return what another process needs to make the batch again, whose changes are decoded by the rule."""
    own = None if rule.transform is None else pickle.dumps(rule)
    names = ("database", "name", "attempt", "positions", "records", "shard", "topic_ids")
    fields = {name: getattr(batch, name) for name in names}
    return pickle.dumps((batch.table, list(batch.changes), fields, own))


def traced(batch: Batch, chunks: Iterable[Chunk]) -> tuple[Any, ...] | None:
    if not batch.is_traced:
        return None
    records = []
    for chunk in chunks:
        topic, partition = chunk.assignment.partition
        for one in chunk.messages:
            if own := batch.traced_by.of_record(topic, partition, one.offset()):
                records.append((topic, partition, one.offset(), dict(own)))
    return dict(batch.traced_by.of_batch()), records
