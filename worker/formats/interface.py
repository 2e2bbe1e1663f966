"""The contract of a format: a cheap route for the fetcher, a full decode for the processors."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Annotated, Any, Protocol, cast, runtime_checkable

import msgspec
from confluent_kafka import Message

from handlers import Change
from handlers.logs import get_logger

Named = tuple[str | None, str | None]
"""The names of the transactions in which the record begins and ends. None: no transaction continues before it
(after it). An empty name: the previous record's."""
UNKNOWN: Named = ("", "")
ALONE: Named = (None, None)
SOME = "?"
"""A transaction without a name."""


log = get_logger("decoding")

UNREADABLE: list[tuple[str, bytes | None]] = [("binlane.headers", b"could not be read")]
"""Stands for headers of which one name is not UTF-8."""
_SHOWN = 60
"""Most characters of a value that an error shows."""


class Record(Protocol):
    """The part of confluent_kafka.Message that formats use."""

    def value(self) -> bytes | None: ...
    def key(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since 1970)."""

    def __len__(self) -> int:
        """The value's length in bytes."""


# A direct call that CPython has specialized does not check whether the client left an exception.
_headers = methodcaller("headers")


def any_headers(record: Record) -> list[tuple[str, bytes | None]] | None:
    """Return the record's headers, or UNREADABLE. Never raises."""
    try:
        return cast("list[tuple[str, bytes | None]] | None", _headers(record))
    except Exception:
        # A second call would return the same list with null pointers, whose use kills the process.
        cast(Message, record).set_headers(cast(Any, UNREADABLE))
    place = f"{record.topic()}[{record.partition()}] offset {record.offset()}"
    log.warning("headers_unreadable", position=place)
    return UNREADABLE


def known_headers(record: Record) -> list[tuple[str, bytes | None]]:
    """Return the record's headers. Raises UndecodableRecord if they cannot be read."""
    if (found := any_headers(record)) == UNREADABLE:
        raise UndecodableRecord("its headers cannot be read: the name of one is not UTF-8")
    return found or []


def remade(record: Record, key: bytes | None, value: bytes | None, without: Container[str] = ()) -> Record:
    """Copy the record with another key and value, and `without` these headers."""
    headers = [(name, content) for name, content in any_headers(record) or () if name not in without]
    made = Message(
        topic=record.topic(),
        partition=record.partition(),
        offset=record.offset(),
        key=key,
        value=value,
        headers=cast(Any, headers or None),
        timestamp=record.timestamp(),
    )
    return cast(Record, made)


class Route(Protocol):
    """The table that a record belongs to."""

    @property
    def database(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def alone(self) -> bool:
        """True for DDL, which is the only record of its batch."""


class PlainRoute(msgspec.Struct, frozen=True, gc=False):
    """A route without other fields."""

    database: str
    table: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Apart:
    """A record to split: it contains changes of several tables, or statements between rows."""

    parts: Sequence[tuple[Route, bytes]]
    """Parts in source order. Each is the value of a record with only these changes. A table may have several
    parts, with a statement between them. No two changes have the same index. If some of the record is
    undecodable, its table is unknown. It becomes the last part, whose route has no names."""


@dataclass(frozen=True, slots=True)
class Skip:
    """A record without a change of any table. Its offset counts as finished."""

    reason: str
    """A metric label: `tombstone`, `transaction`, `database_ddl` ..."""


class UndecodableRecord(ValueError):
    """The record does not have the expected format. A retry does not help."""


class ValuelessFault(UndecodableRecord):
    """The message contains no value of the record."""


def shortened(text: str) -> str:
    """Cut a text from a record to the length that an error shows."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def wrong_value(column: str, type_text: str | None, held: str, error: Exception) -> UndecodableRecord:
    """The error for a value that does not fit its column's type. `type_text` is None for an unknown type."""
    expected = "any type" if type_text is None else f"type {shortened(type_text)}"
    return UndecodableRecord(f"column {column!r} of {expected} holds {shortened(held)}: {error}")


class Format(Protocol):
    name: str
    route: Callable[[bytes], Route]
    """The hot path: value -> route. Raises any exception for a value that it cannot route. Then `explain`
    decides, as it does for a route with an empty database or table name."""

    def explain(self, record: Record) -> Route | Skip | Apart:
        """The slow path: route, skip or split one record. Raises UndecodableRecord."""

    def decode(self, record: Record, into: list[Change]) -> None:
        """Append the record's changes in source order. A record without rows or a statement has none. If
        `explain` splits a record, its parts are decoded, not the record.

        Raises UndecodableRecord; then `into` is unchanged."""

    def source_time_ms(self, record: Record) -> int | None:
        """Time of the record's change in its source, in milliseconds since 1970 (UTC). None if the record has
        no such time. Raises any exception for a record of another format (see `decoding.source_time`)."""


_OF_FORMATS = (
    "name",
    "route",
    "explain",
    "decode",
    "source_time_ms",
    "decode_many",
    "ready",
    "log_position",
    "learn",
    "transactions",
    "ungathered",
    "guarded",
)
"""All that may be asked of a format."""


def passed_on(format_: Format, wrapper: type) -> dict[str, Any]:
    """Return what a format that wraps another one has of that: all that its own class does not define."""
    names = (name for name in _OF_FORMATS if hasattr(format_, name) and not hasattr(wrapper, name))
    return {name: getattr(format_, name) for name in names}


@runtime_checkable
class NamesSchemas(Protocol):
    """Optional methods of formats whose records name their schemas by id (`schema_registry`)."""

    def ready(self, records: Sequence[Record]) -> int:
        """Count the first records whose schemas are known. Another thread requests the schema of the next
        one. `route`, `explain` and the other methods may wait if a record is not ready.

        Never waits and never raises."""


class DecodesMany(Protocol):
    """The optional method `decode_many` of a format: decodes many records of a table at less cost."""

    def __call__(
        self, table: str, records: Iterator[Record], into: list[Change], ends: list[int], /
    ) -> Record | None:
        """Decode the records as `decode` does. All are of one table ("database.table"). Never raises.

        Appends to `ends`, for each record, the length of `into` after its changes. Returns the first record
        that it cannot decode, and appends nothing for it: `decode` raises the reason. None: all decoded."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A record's position in its source's log, which puts records of several topics in source order."""

    stream: str
    """The log's server or connector. Orders are comparable only within one stream."""
    order: tuple[int, ...]
    """Grows with the source's log: for example (number of the binlog file, position). If it is empty, the
    record has no position, and its Kafka timestamp is used."""
    barrier: bool
    """True for DDL and truncate. Earlier records of all topics are processed first, and later ones wait."""


@runtime_checkable
class SeparateDDL(Protocol):
    """Optional methods of formats whose tool writes DDL to a separate topic (`kafka.ddl_topics`)."""

    def log_position(self, record: Record) -> LogPosition | None:
        """The record's position. None if it is not from the log (a tombstone, a heartbeat): then it follows
        the previous record. Never raises."""

    def learn(self, record: Record) -> None:
        """Remember the table definitions of a DDL record, by its position in the log.

        The worker calls this before it decodes the record or a later one in the log. When it starts, it calls
        this for the whole topic, then for each new record. Another call for the same record changes nothing.
        Never raises. Ignores a record without a table definition."""


_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The start of the year 1 and the end of the year 9999, in seconds since 1970."""
FIRST_MS, LAST_MS = _FIRST * 1000, _LAST * 1000 + 999

Milliseconds = Annotated[int, msgspec.Meta(ge=FIRST_MS, le=LAST_MS)]
Seconds = Annotated[int, msgspec.Meta(ge=_FIRST, le=_LAST)]


def has_calendar(time_ms: int) -> bool:
    """Whether the time is in the years 1 to 9999."""
    return FIRST_MS <= time_ms <= LAST_MS


def in_calendar(time_ms: int, what: str = "its time") -> int:
    """Return the time. Raises UndecodableRecord if it is outside the years 1 to 9999."""
    if not has_calendar(time_ms):
        raise UndecodableRecord(f"{what}, {time_ms} ms, is outside the years 1 to 9999")
    return time_ms


def kafka_time(record: Record) -> int:
    """The record's time in Kafka, in milliseconds; a producer may set any time. Raises UndecodableRecord for
    a time outside the years 1 to 9999."""
    return in_calendar(record.timestamp()[1], "its time in Kafka")
