"""Table definitions from `kafka.ddl_topics`, which the child processes must learn too."""

from __future__ import annotations

from typing import Any, cast

from worker.formats.interface import Format, Record
from worker.processes.records import packed

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
    "ungathered",
    "guarded",
)


class Noting:
    """A format that learns definitions, and appends the records that it has learned from to `into`."""

    def __init__(self, format_: Format, into: list[tuple[Any, ...]]) -> None:
        self._learn = cast(Any, format_).learn
        self._into = into
        self._noted: set[tuple[Any, ...]] = set()
        for name in _PASSED_ON:
            if hasattr(format_, name):
                setattr(self, name, getattr(format_, name))

    def learn(self, record: Record) -> None:
        try:
            self._learn(record)
        finally:
            place = record.topic(), record.partition(), record.offset(), record.timestamp()
            if place not in self._noted:  # a later assignment reads it again
                self._noted.add(place)
                self._into.append((*place[:2], *packed([record])))
