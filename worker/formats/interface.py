"""What every format gives: a cheap route for the fetcher, a full decode for the processors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import msgspec
from confluent_kafka import Message

from handlers import Change

_SHOWN = 60
"""Characters of a value in an error."""


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
        ...

    def __len__(self) -> int:
        """The value's length in bytes."""
        ...


def remade(
    record: Record, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> Record:
    """A record at the same place that holds this instead."""
    made = Message(
        topic=record.topic(),
        partition=record.partition(),
        offset=record.offset(),
        key=key,
        value=value,
        headers=cast(Any, headers),
        timestamp=record.timestamp(),
    )
    return cast(Record, made)


class Route(Protocol):
    """Where a record belongs."""

    @property
    def database(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def alone(self) -> bool:
        """True for DDL: it stands alone in its batch."""
        ...


class PlainRoute(msgspec.Struct, frozen=True, gc=False):
    """A route, and nothing else."""

    database: str
    table: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Apart:
    """A record that holds changes of several tables, or statements among rows: it has to be taken apart."""

    parts: Sequence[tuple[Route, bytes]]
    """In source order, each the value of a record that would hold just that; several may be of one table,
    with a statement between them. No change of the record has the same index in two of them. The last one has
    a route without names if it is undecodable: of what it holds the table cannot be told."""


@dataclass(frozen=True, slots=True)
class Skip:
    """A record that holds no change of any table; its offset counts as finished."""

    reason: str
    """A metric label: `tombstone`, `transaction`, `database_ddl` ..."""


class UndecodableRecord(ValueError):
    """The record is not of its format; trying again does not help."""


def shortened(text: str) -> str:
    """A text of a record as an error shows it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def wrong_value(column: str, type_text: str | None, held: str, error: Exception) -> UndecodableRecord:
    """A column that does not hold what its type says. `type_text`: None if nothing tells the type."""
    told = "any type" if type_text is None else f"type {shortened(type_text)}"
    return UndecodableRecord(f"column {column!r} of {told} holds {shortened(held)}: {error}")


class Format(Protocol):
    name: str
    route: Callable[[bytes], Route]
    """The hot path: value -> route. Raises anything for a value it cannot route; then `explain` decides.
    A route with an empty database or table name goes to `explain` too."""

    def explain(self, record: Record) -> Route | Skip | Apart:
        """The slow path: route, skip or take apart one record. Raises UndecodableRecord."""
        ...

    def decode(self, record: Record, into: list[Change]) -> None:
        """Append the record's changes, in source order; nothing for a record without rows. Of a record that
        is to be taken apart this is asked for its parts.

        Raises UndecodableRecord, and then has appended nothing."""
        ...

    def source_time_ms(self, record: Record) -> int | None:
        """When the record's change happened in its source, milliseconds since 1970 in UTC; None if it does
        not say. Raises anything for a record that is not of the format (`decoding.source_time`)."""
        ...


@runtime_checkable
class NamesSchemas(Protocol):
    """What a format adds whose records name their schemas by ids (`schema_registry`)."""

    def ready(self, records: Sequence[Record]) -> int:
        """How many of the first records need nothing that is not known yet; what the next one needs is asked
        for, by another thread. `route`, `explain` and the rest may wait for records that are not ready.

        Never waits, and never raises."""
        ...


class DecodesMany(Protocol):
    """What a format may have beside `decode`, as `decode_many`: a table's records at one go, at less cost."""

    def __call__(
        self, table: str, records: Iterator[Record], into: list[Change], ends: list[int], /
    ) -> Record | None:
        """As `decode` for each of the records, which are the table's ("database.table").

        `ends` gets for each of them how many changes come up to its end. Returns the first that cannot be
        decoded, for `decode` to say why, with nothing of it appended; None: all are decoded. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where in its source's log a record comes from, to put records of several topics in source order."""

    stream: str
    """Orders compare within one stream only: a server, a connector."""
    order: tuple[int, ...]
    """Grows with the source's log, such as (number of the binlog file, position). Empty: the record does not
    say, and its Kafka timestamp counts."""
    barrier: bool
    """DDL or truncate: what comes before it in any topic goes first, what comes after it waits."""


@runtime_checkable
class SeparateDDL(Protocol):
    """What a format adds whose tool writes DDL to a topic of its own (`kafka.ddl_topics`)."""

    def log_position(self, record: Record) -> LogPosition | None:
        """None for a record that is not of the log (a tombstone, a heartbeat): it goes with the one before
        it. Never raises."""
        ...

    def learn(self, record: Record) -> None:
        """Remember the table definitions of a record of a DDL topic, by its place in the log.

        Called before the record, or a record after it in the log, is decoded: for the whole topic when the
        worker starts, then for each new record. More than once for the same record is the same as once.
        Never raises; anything that is no table definition is passed over."""
        ...
