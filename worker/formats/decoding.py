"""The boundary around formats: an exception, or a size that is too large, affects only its record.

A hint says who seems to have written a refused record, and what to do. A wrong guess does no harm to valid
records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from handlers import Change
from handlers.logs import get_logger
from worker.formats.interface import (
    UNKNOWN,
    Apart,
    DecodesMany,
    Format,
    LogPosition,
    Named,
    Record,
    Route,
    SeparateDDL,
    Skip,
    UndecodableRecord,
    has_calendar,
)
from worker.formats.json_rows import object_in

log = get_logger("decoding")

SMALL = 64 << 20
"""Bytes that a decoded record may always take, even if `lanes.max_bytes` is smaller."""

# Bytes in Python for parts of a JSON text. An object becomes a dict and maybe a change. A comma adds a value.
_OBJECT, _VALUE = 300, 100
# A packet of Canal has a tag before each column's name. A row may have just one column.
_COLUMN, _NAME_TAG, _PACKET = 350, b"\x1a", (b"\x08", b"\x10", b"\x18")
_MOST_GROWTH = (_OBJECT + _VALUE) // len("{},") + 1
LARGE = SMALL // _MOST_GROWTH
"""Smallest record, in bytes, whose decoded size is worth a check."""


def fault_of(error: Exception, record: Record) -> UndecodableRecord:
    """Turn a format's exception into an UndecodableRecord of this record. The caller adds `from error`."""
    if isinstance(error, UndecodableRecord):
        return error
    place = f"{record.topic()}[{record.partition()}] offset {record.offset()}"
    return UndecodableRecord(f"{type(error).__name__} at {place}: {error}")


def explained(format_: Format, record: Record) -> Route | Skip | Apart:
    """Call `format_.explain`. Raises no exception other than UndecodableRecord."""
    try:
        return format_.explain(record)
    except Exception as error:
        raise fault_of(error, record) from error


def decoded(format_: Format, record: Record, into: list[Change]) -> None:
    """Call `format_.decode`. Raises no exception other than UndecodableRecord."""
    try:
        format_.decode(record, into)
    except Exception as error:
        raise fault_of(error, record) from error


def source_time(format_: Format, record: Record) -> int | None:
    """Call `format_.source_time_ms`. None if it raises, or if the time is outside the years 1 to 9999."""
    try:
        time_ms = format_.source_time_ms(record)
    except Exception:  # the record's processor reports the error
        return None
    return time_ms if time_ms is not None and has_calendar(time_ms) else None


def transactions_of(format_: Format, record: Record) -> Named:
    """Call the optional `transactions` of the format. Without it, use the transaction of the record's last
    change. Never raises."""
    try:
        if (tell := getattr(format_, "transactions", None)) is not None:
            return cast(Named, tell(record))
        refuse_oversized(record, SMALL)
        changes: list[Change] = []
        format_.decode(record, changes)
    except Exception:  # the record's processor reports the error
        return UNKNOWN
    name = changes[-1].transaction if changes else ""
    return name, name


def log_position_of(format_: SeparateDDL, record: Record) -> LogPosition | None:
    """Call `format_.log_position`. If it raises, log the error and return None."""
    try:
        return format_.log_position(record)
    except Exception as error:
        log.error("place_not_known", error=str(fault_of(error, record)))
        return None


def is_mark(format_: Format, record: Record) -> bool:
    """Whether the record is a heartbeat, or only marks the beginning or end of a transaction."""
    try:
        return explained(format_, record) in (Skip("transaction"), Skip("heartbeat"))
    except UndecodableRecord:
        return False


def learn(format_: SeparateDDL, record: Record) -> None:
    """Call `format_.learn`. If it raises, log the error."""
    try:
        format_.learn(record)
    except Exception as error:
        log.error("definition_not_learned", error=str(fault_of(error, record)))


def many_of(format_: Format) -> DecodesMany:
    """The format's `decode_many`, or `one_by_one` if it has none."""
    found: DecodesMany = getattr(format_, "decode_many", one_by_one)
    return found


def one_by_one(
    _table: str, records: Iterator[Record], _into: list[Change], _ends: list[int]
) -> Record | None:
    """A `DecodesMany` that decodes nothing and leaves each record to `decode`."""
    return next(records, None)


def decoded_size(value: bytes) -> int:
    """Estimate the bytes of a record's changes from its commas and braces. Takes 1 ms per MiB."""
    if value.startswith(_PACKET):
        return len(value) + _COLUMN * value.count(_NAME_TAG)
    return len(value) + _OBJECT * value.count(b"{") + _VALUE * value.count(b",")


def refuse_oversized(record: Record, most_bytes: int) -> None:
    """Raise UndecodableRecord if the decoded record would take more than `most_bytes`."""
    if len(record) * _MOST_GROWTH <= most_bytes:
        return
    size = decoded_size(record.value() or b"")
    if size > most_bytes:
        raise UndecodableRecord(
            f"the decoded record would take about {size >> 20} MiB, but at most {most_bytes >> 20} MiB are "
            "allowed; to read it, raise lanes.max_bytes and the worker's memory"
        )


_LAYOUT = "describe its records with format: json; docs/formats.md has a layout"


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    wanted = frozenset(names)
    return lambda values: wanted <= values.keys()


_KNOWN: tuple[tuple[str, Callable[[Mapping[str, Any]], bool], str], ...] = (
    (
        "",
        _has("specversion", "type", "source", "id"),
        "it is a CloudEvents envelope: set the connector's value.converter to "
        f"org.apache.kafka.connect.json.JsonConverter, or {_LAYOUT}",
    ),
    ("", _has("op_type", "op_ts", "table"), f"it is a record of Oracle GoldenGate: {_LAYOUT}"),
    (
        "",
        _has("commitTs", "version", "type"),
        "it is a record of TiCDC's simple protocol: set protocol=canal-json, and format: canal",
    ),
    (
        "canal",
        lambda values: "isDdl" in values or "mysqlType" in values,
        "it is a Canal message: set `format: canal` for its topic",
    ),
    (
        "maxwell",
        lambda values: (
            "database" in values and ("data" in values or "def" in values) and "isDdl" not in values
        ),
        "it is a Maxwell record: set `format: maxwell` for its topic",
    ),
    (
        "debezium",
        lambda values: isinstance(values.get("source"), dict) and ("op" in values or "ddl" in values),
        "it is a Debezium record: set `format: debezium` for its topic",
    ),
    (
        "",
        _has("operationType", "ns", "documentKey"),
        "it is a change event of MongoDB's own connector: its documents are not rows, and are not read",
    ),
)
"""(format, test for its records, hint). The format is empty for writers that have none here."""


def hint_of(values: Mapping[str, Any], expected: str) -> str | None:
    """Guess the writer of a JSON object that does not have the format `expected`. None: it is unknown."""
    payload = values.get("payload")
    if isinstance(payload, dict) and "schema" in values:
        values = payload
    found = [(name, hint) for name, tells, hint in _KNOWN if tells(values)]
    # An object that also passes its own format's test is a record of that format.
    return None if not found or any(name == expected for name, _ in found) else found[0][1]


def hint_at(value: bytes, expected: str) -> str:
    """The hint for a record's value, as the end of an error: `; it is ...`. Empty if there is no hint."""
    values = object_in(value)
    hint = None if values is None else hint_of(values, expected)
    return "" if hint is None else f"; {hint}"


_BINARY = {
    "canal": "neither JSON nor a Canal packet, but other binary data",
    "debezium": (
        "not JSON, but binary data; set value.converter=org.apache.kafka.connect.json.JsonConverter in the "
        "connector"
    ),
}


def stranger(value: bytes, what: str, error: Exception, expected: str = "") -> UndecodableRecord:
    """The error for a value that is not what its topic's format expects (`what`). `error`: the decoder's."""
    start = value[:64].lstrip()
    if not start:
        return UndecodableRecord(f"not a {what}: the value is empty")
    if not start.startswith((b"{", b"[", b'"')) and any(byte < 0x20 or byte > 0x7E for byte in start):
        return UndecodableRecord(_BINARY.get(expected, f"not a {what}, but binary data"))
    if isinstance(error, RecursionError):
        return UndecodableRecord(f"not a {what}: nested too deeply")
    return UndecodableRecord(f"not a {what}: {error}{hint_at(value, expected)}")
