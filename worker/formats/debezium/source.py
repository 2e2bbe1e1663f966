"""The `source` block of a Debezium envelope: its connector, table and position in the source's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from handlers.api import Operation
from worker.formats.debezium.connect.schema import BEGIN, Envelopes
from worker.formats.interface import Milliseconds, UndecodableRecord
from worker.formats.json_rows import DECODE_ERRORS

Row = dict[str, Any]
Payload = bytes | memoryview | msgspec.Raw
"""JSON."""

REFUSALS = (*DECODE_ERRORS, ValueError, TypeError, ArithmeticError)
"""Exceptions of a reader for a value that does not fit its column's type."""

_MOST_DIGITS = 18
ROWS: Mapping[str, Operation] = {"c": "insert", "r": "snapshot", "u": "update", "d": "delete"}
"""`op` of an envelope -> operation."""
MYSQL = ("mysql", "mariadb")
POSTGRESQL = "postgresql"
"""Values of `source.connector`."""


class Source(msgspec.Struct, gc=False):
    """The `source` block of an envelope. The first fields order records."""

    name: str = ""
    """The connector's `topic.prefix`."""
    file: str | None = None
    pos: int | None = None
    row: int | None = None
    lsn: int | None = None
    sequence: str | None = None
    connector: str = ""
    """Empty in records of the schema history topic."""
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    ts_ms: Milliseconds | None = None
    gtid: str | None = None


_BY_LAYOUT = ("sqlserver", "oracle", "db2", "informix", "vitess", "spanner", "ibmi", "cockroachdb", "TiCDC")
"""Connectors whose records contain rows that format: json can read."""
_ADVICE = {
    "mongodb": "its documents are not rows: make them rows with the transform ExtractNewDocumentState, and "
    "describe those (format: json)",
    **dict.fromkeys(_BY_LAYOUT, "describe its records with format: json; docs/formats.md has a layout"),
}
_OTHER_ADVICE = "describe its records (format: json)"


def refuse_others(connector: str) -> None:
    """Raise UndecodableRecord for an untested connector, because its types differ."""
    if connector and connector not in (*MYSQL, POSTGRESQL):
        raise UndecodableRecord(
            f"a record of Debezium's connector {connector[:40]!r}: those of mysql, mariadb and postgresql "
            f"are read; remove its topics from kafka.topics, or {_ADVICE.get(connector, _OTHER_ADVICE)}"
        )


_read_sequence = msgspec.json.Decoder(list[int | str | None], strict=False).decode


@lru_cache(maxsize=1_000)
def _file_number(file: str) -> int | None:
    """`mysql-bin.000042` -> 42."""
    number = file.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS else None


def log_position(source: Source) -> tuple[int, ...]:
    """The change's position in its source's log. Empty if the source does not have it.

    MySQL and MariaDB: (number of the binlog file, position, row). PostgreSQL: (LSN of the previous
    commit, LSN), because transactions arrive in commit order. Never raises."""
    if source.file is not None and source.pos is not None:
        number = _file_number(source.file)
        if number is not None:
            return number, source.pos, source.row or 0
    if source.lsn is None:
        return ()
    try:
        before = _read_sequence(source.sequence or "[]")[:1]
        return int(before[0] or 0) if before else 0, source.lsn
    except (*DECODE_ERRORS, ValueError):
        return 0, source.lsn


# ---- records, read without their rows

_NO_DDL = msgspec.Raw()


class _Logged(msgspec.Struct, gc=False):
    """The fields with a record's table, its time and its position in the log."""

    source: Source
    op: str | None = None
    ts_ms: Milliseconds | None = None
    ddl: msgspec.Raw = _NO_DDL


read_logged: Callable[[Payload], _Logged] = msgspec.json.Decoder(_Logged).decode


def logged_of(value: bytes, envelopes: Envelopes) -> _Logged:
    """Read a value without its rows. Raises one of DECODE_ERRORS."""
    if not value.startswith(BEGIN):
        try:
            return read_logged(value)  # nearly always a value without a schema
        except DECODE_ERRORS:
            pass
    return read_logged(envelopes.split(value).payload)
