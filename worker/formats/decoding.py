"""The boundary around formats: whatever one raises, or would need, is that record's fault alone."""

from __future__ import annotations

from collections.abc import Iterator

from handlers import Change
from handlers.logs import get_logger
from worker.formats.interface import (
    Apart,
    DecodesMany,
    Format,
    LogPosition,
    Record,
    Route,
    SeparateDDL,
    Skip,
    UndecodableRecord,
)
from worker.formats.times import has_calendar

log = get_logger("decoding")

SMALL = 64 << 20
"""Bytes that a record may take when it is decoded, however small `lanes.max_bytes` is."""

# What a JSON text becomes in Python: an object is a dict and maybe a change, each comma another value.
_OBJECT, _VALUE = 300, 100
# A packet of Canal has a tag before the name of each column, whose row may have no other.
_COLUMN, _NAME_TAG, _PACKET = 350, b"\x1a", (b"\x08", b"\x10", b"\x18")
_MOST_GROWTH = (_OBJECT + _VALUE) // len("{},") + 1
LARGE = SMALL // _MOST_GROWTH
"""Bytes of a record from which it is worth a look."""


def fault_of(error: Exception, record: Record) -> UndecodableRecord:
    """What a format raised for the record, as that record's fault; its `from` is yours to add."""
    if isinstance(error, UndecodableRecord):
        return error
    place = f"{record.topic()}[{record.partition()}] offset {record.offset()}"
    return UndecodableRecord(f"{type(error).__name__} at {place}: {error}")


def explained(format_: Format, record: Record) -> Route | Skip | Apart:
    """`format_.explain`, total: raises UndecodableRecord and nothing else."""
    try:
        return format_.explain(record)
    except Exception as error:
        raise fault_of(error, record) from error


def decoded(format_: Format, record: Record, into: list[Change]) -> None:
    """`format_.decode`, total as `explained` is."""
    try:
        format_.decode(record, into)
    except Exception as error:
        raise fault_of(error, record) from error


def source_time(format_: Format, record: Record) -> int | None:
    """`format_.source_time_ms`, total: None where it raises, or where no calendar has the time."""
    try:
        time_ms = format_.source_time_ms(record)
    except Exception:  # the record's processor tells what is wrong with it
        return None
    return time_ms if time_ms is not None and has_calendar(time_ms) else None


def log_position_of(format_: SeparateDDL, record: Record) -> LogPosition | None:
    """`format_.log_position`, total: None where it raises."""
    try:
        return format_.log_position(record)
    except Exception as error:
        log.error("place_not_known", error=str(fault_of(error, record)))
        return None


def learn(format_: SeparateDDL, record: Record) -> None:
    """`format_.learn`, total: a record from which nothing is learned is told."""
    try:
        format_.learn(record)
    except Exception as error:
        log.error("definition_not_learned", error=str(fault_of(error, record)))


def many_of(format_: Format) -> DecodesMany:
    """The format's `decode_many`; of one that has none, what leaves each record to `decode`."""
    found: DecodesMany = getattr(format_, "decode_many", one_by_one)
    return found


def one_by_one(
    _table: str, records: Iterator[Record], _into: list[Change], _ends: list[int]
) -> Record | None:
    """A `DecodesMany` that decodes nothing."""
    return next(records, None)


def decoded_size(value: bytes) -> int:
    """About how many bytes the record's changes will take, from its commas and braces alone: 1 ms a MiB."""
    if value.startswith(_PACKET):
        return len(value) + _COLUMN * value.count(_NAME_TAG)
    return len(value) + _OBJECT * value.count(b"{") + _VALUE * value.count(b",")


def refuse_oversized(record: Record, most_bytes: int) -> None:
    """Raises UndecodableRecord for a record that would take more when it is decoded."""
    if len(record) * _MOST_GROWTH <= most_bytes:
        return
    size = decoded_size(record.value() or b"")
    if size > most_bytes:
        raise UndecodableRecord(
            f"decoded it would take about {size >> 20} MiB, and a record may take {most_bytes >> 20} MiB; to "
            "take it raise lanes.max_bytes, and the memory with it"
        )
