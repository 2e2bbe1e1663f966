"""Table definitions from `kafka.ddl_topics`, which the child processes must learn too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, cast

from confluent_kafka import Message

from worker.formats.interface import Format, Record, any_headers

_PASSED_ON = (
    "name",
    "route",
    "explain",
    "decode",
    "source_time_ms",
    "decode_many",
    "ready",
    "log_position",
    "transactions",
)

PackedRecords = Sequence[Any]

# Called through the class, which saves a look-up for each record.
_key, _value, _offset, _timestamp = Message.key, Message.value, Message.offset, Message.timestamp


class Noting:
    """A format that learns definitions, and notes the records that it has learned from."""

    def __init__(self, format_: Format, note: Callable[[Record], object]) -> None:
        self._learn: Callable[[Record], None] = cast(Any, format_).learn
        self._note = note
        for name in _PASSED_ON:
            if hasattr(format_, name):
                setattr(self, name, getattr(format_, name))

    def learn(self, record: Record) -> None:
        try:
            self._learn(record)
        finally:
            self._note(record)


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
