"""A dead letter: the original record with headers that say where it came from and why it is here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from confluent_kafka import Message

from offsets.types import TopicPartition
from worker.formats.interface import Record, any_headers

Header = tuple[str, bytes | None]

_PREFIX = "binlane."
_FIRST = "binlane.topic"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of a dead letter. Everything except the record's place may be unknown (None)."""

    place: TopicPartition
    """The partition of the letter itself."""
    offset: int
    topic: str | None
    """The record's source, with `partition` and `source_offset`."""
    partition: int | None
    source_offset: int | None
    index: int | None
    """The index of the failing change in the record. None: the whole record."""
    table: str | None
    handler: str | None
    """None: for all handlers of the table."""
    error: str | None
    attempts: int | None
    time: str | None
    """ISO 8601, UTC."""
    worker: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """The original headers."""
    timestamp: tuple[int, int]
    """The original record's: (kind, milliseconds since 1970), as in confluent_kafka."""

    @property
    def name(self) -> str:
        """`partition:offset`, as commands accept it."""
        return f"{self.place.partition}:{self.offset}"

    @property
    def stood_at(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the record; None if unknown."""
        if self.topic is None or self.partition is None or self.source_offset is None:
            return None
        return self.topic, self.partition, self.source_offset

    @property
    def about(self) -> tuple[object, ...]:
        """Equal for letters about the same failure. A crash between a letter and the next checkpoint causes a
        second letter."""
        if self.stood_at is None:
            return self.place, self.offset
        record = (self.stood_at, self.timestamp, self.key, self.value)
        return *record, self.index, self.table, self.handler, self.worker

    @property
    def source(self) -> str:
        """`topic[partition] offset n row i`, as in logs."""
        if self.stood_at is None:
            return "unknown"
        topic, partition, offset = self.stood_at
        row = "" if self.index is None else f" row {self.index}"
        return f"{topic}[{partition}] offset {offset}{row}"

    def original(self) -> Record:
        """Return the record as it was in its source topic, for its format."""
        made = Message(
            topic=self.place.topic if self.topic is None else self.topic,
            partition=self.partition or 0,
            offset=self.source_offset or 0,
            key=self.key,
            value=self.value,
            headers=cast(Any, list(self.headers) or None),
            timestamp=self.timestamp,
        )
        return cast(Record, made)


def headers_of(
    record: Record,
    *,
    table: str,
    handler: str | None,
    index: int | None,
    error: str,
    attempts: int,
    time: datetime,
    worker: str,
) -> list[Header]:
    """Return the record's own headers, then those of its letter."""
    kind, milliseconds = record.timestamp()
    own: list[tuple[str, Any]] = [
        (_FIRST, record.topic()),
        ("binlane.partition", record.partition()),
        ("binlane.offset", record.offset()),
        ("binlane.index", index),
        ("binlane.table", table),
        ("binlane.handler", handler),
        ("binlane.error", error),
        ("binlane.attempts", attempts),
        ("binlane.time", time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")),
        ("binlane.worker", worker),
        ("binlane.timestamp", f"{kind} {milliseconds}"),
    ]
    return [
        *(any_headers(record) or ()),
        *((name, str(value).encode("utf-8", "backslashreplace")) for name, value in own if value is not None),
    ]


def read_letter(record: Record) -> DeadLetter:
    """Read a record of the dead-letter topic. Missing or invalid headers become None."""
    headers = any_headers(record) or []
    # A letter that was sent again has two sets of them.
    begins = [place for place, (name, _) in enumerate(headers) if name == _FIRST]
    begin = begins[-1] if begins else len(headers)
    own = {
        name.removeprefix(_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in headers[begin:]
    }
    return DeadLetter(
        place=TopicPartition(record.topic(), record.partition()),
        offset=record.offset(),
        topic=own.get("topic"),
        partition=_number(own.get("partition"), 32),
        source_offset=_number(own.get("offset")),
        index=_number(own.get("index")),
        table=own.get("table"),
        handler=own.get("handler"),
        error=own.get("error"),
        attempts=_number(own.get("attempts")),
        time=own.get("time"),
        worker=own.get("worker"),
        key=record.key(),
        value=record.value(),
        headers=tuple(headers[:begin]),
        timestamp=_timestamp(own.get("timestamp")) or record.timestamp(),
    )


def _number(text: str | None, bits: int = 64) -> int | None:
    """Also None for numbers beyond Kafka's range."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    number = int(text)
    return number if number < 1 << (bits - 1) else None


def _timestamp(text: str | None) -> tuple[int, int] | None:
    numbers = (text or "").split()
    try:
        kind, milliseconds = map(int, numbers)
    except ValueError:
        return None
    return (kind, milliseconds) if max(abs(kind) << 32, abs(milliseconds)) < 1 << 63 else None
