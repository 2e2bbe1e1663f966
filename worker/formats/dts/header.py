"""The first fields of a DTS record, up to `objectName`. Routing needs no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from worker.formats.dts.schema import LEADING, part
from worker.formats.schema_registry.avro.code import Code

_DOT = "\\u002E"
"""DTS's escape for a dot inside a name."""


class Header(NamedTuple):
    """The leading fields of a record."""

    source_time: int
    """Seconds since 1970."""
    transaction: str
    source_type: str
    operation: str
    object_name: str | None
    end: int
    """The position of the next field."""


def _routing_key() -> Callable[[bytes], Any]:
    code = Code("b, p=0")
    code.fields(part(LEADING[:-2]), {})
    code.line("begin = p")
    code.fields(part(LEADING[-2:]), {})
    code.line("return b[begin:p]")
    return code.made()


def _read_header() -> Callable[[bytes], Any]:
    code = Code("b, p=0")
    read = ("sourceTimestamp", "sourceTxid", "sourceType", "operation", "objectName")
    code.fields(part(LEADING), dict(zip(read, read, strict=True)))
    code.line("if p > len(b): raise IndexError")
    code.line(f"return {code.bind(Header)}({', '.join(read)}, p)")
    return code.made()


routing_key: Callable[[bytes], bytes] = _routing_key()
"""The bytes of `operation` and `objectName`, which decide a record's route.

Raises one of READ_ERRORS. Unlike `read_header`, it does not find all errors."""
read_header: Callable[[bytes], Header] = _read_header()
"""Read and check the leading fields. Raises one of READ_ERRORS."""


def names_of(object_name: str) -> tuple[str, str]:
    """(database, table) of an `objectName` `db.table`. For `db.schema.table` they are schema and table, and
    for `db` the database and an empty table.

    Raises ValueError for other forms."""
    names = [name.replace(_DOT, ".") for name in object_name.split(".")]
    if len(names) > 3 or not all(names):
        raise ValueError(f"`objectName` is {object_name!r}: neither db, db.table nor db.schema.table")
    return (names[0], "") if len(names) == 1 else (names[-2], names[-1])
