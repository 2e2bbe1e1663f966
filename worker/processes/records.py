"""Records of the worker that a child process makes again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, repeat
from typing import Any, cast

from confluent_kafka import Message

from handlers import Batch
from worker.formats.interface import Record, any_headers
from worker.units.chunk import Chunk

PackedRecords = Sequence[Any]

# Called through the class, which saves a look-up for each record.
_Field = Callable[[Record], Any]
_key, _value, _offset = cast(_Field, Message.key), cast(_Field, Message.value), cast(_Field, Message.offset)
_timestamp = cast(_Field, Message.timestamp)


def packed(records: Sequence[Record]) -> PackedRecords:
    """Return what another process needs to make the records again, without their partition: their offsets,
    keys, values, headers (None: no record has any), and kinds and values of their times."""
    headers = list(map(any_headers, records))
    kinds, times = zip(*map(_timestamp, records), strict=True)
    return (
        list(map(_offset, records)),
        list(map(_key, records)),
        list(map(_value, records)),
        headers if any(headers) else None,
        kinds,
        times,
    )


def made(topic: str, partition: int, columns: PackedRecords) -> list[Record]:
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
