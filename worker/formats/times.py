"""Times in milliseconds since 1970, from year 1 to 9999. A record with any other time is undecodable."""

from __future__ import annotations

from typing import Annotated

import msgspec

from worker.formats.interface import Record, UndecodableRecord

_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The start of the year 1 and the end of the year 9999, in seconds since 1970."""
FIRST_MS, LAST_MS = _FIRST * 1000, _LAST * 1000 + 999

Milliseconds = Annotated[int, msgspec.Meta(ge=FIRST_MS, le=LAST_MS)]
Seconds = Annotated[int, msgspec.Meta(ge=_FIRST, le=_LAST)]


def has_calendar(time_ms: int) -> bool:
    """Whether the time is in the years 1 to 9999."""
    return FIRST_MS <= time_ms <= LAST_MS


def kafka_time(record: Record) -> int:
    """The record's time in Kafka, in milliseconds; a producer may set any time. Raises UndecodableRecord for
    a time outside the years 1 to 9999."""
    time_ms = record.timestamp()[1]
    if not has_calendar(time_ms):
        raise UndecodableRecord(f"its time in Kafka, {time_ms} ms, is outside the years 1 to 9999")
    return time_ms
