"""Records that go wrong on their way: captured ones with bytes, values, types and keys exchanged."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from random import Random

from captured import CapturedRecord, records
from dts_records import dts_stream

from handlers import Change
from handlers.rows import shard_of
from handlers.values.change_json import line
from worker.formats.canal.format import Canal
from worker.formats.debezium.format import Debezium
from worker.formats.decoding import source_time
from worker.formats.dts.format import DTS
from worker.formats.images import tables_of
from worker.formats.interface import Apart, Format, SeparateDDL, UndecodableRecord
from worker.formats.maxwell.format import Maxwell
from worker.formats.own_json.format import Json
from worker.formats.own_json.layout import JsonLayout

__all__ = ["MOST_GROWTH", "STREAMS", "mutated", "originals", "reader", "try_out"]

STREAMS = {
    "canal": "canal",
    "canal-packets": "canal",
    "debezium-plain": "debezium",
    "debezium-schemas": "debezium",
    "debezium-strings": "debezium",
    "debezium-unwrap": "debezium",
    "maxwell": "maxwell",
    "dts": "dts",
    "json": "json",
}
"""Stream -> its format. Of `json` the records are Maxwell's, by a layout that names types."""

MOST_GROWTH = 300_000
"""Characters that a change's JSON may have beyond a hundred times its record: a decimal's bound, twice."""

_LAYOUT = {
    "database": "database",
    "table": "table",
    "operation": "type",
    "operations": {
        "insert": "insert",
        "update": "update",
        "delete": "delete",
        "bootstrap-insert": "insert",
        "null": "skip",
    },
    "after": "data",
    "before": "old",
    "key": ["id"],
    "time": "ts",
    "time_unit": "s",
    "columns": {
        "id": "bigint",
        "total": "decimal(12,2)",
        "note": "json",
        "status": "enum('a','b')",
        "created_at": "timestamp",
        "name": "varbinary(10)",
        "tags": "set('a','b')",
        "qty": "bit(8)",
        "active": "boolean",
        "c_time": "time(3)",
        "geo": "point",
    },
}
_LITERALS = (
    *(b"null", b"1", b'"x"', b"[]", b"{}", b"-1", b"1e400", b"9" * 40, b"true", b'"\\u0000"', b'""', b"1.5"),
    *(b"[[1]]", b"1e30000000", b"1e-30000000", b'"1e30000000"', b"-0.0", b'"NaN"', b"9" * 5000, b'"\\ud800"'),
    *(b'"0000-00-00 00:00:00"', b'"99999-01-01"', b'"-838:59:59.9"', b"[" * 200 + b"]" * 200, b'"AA=="'),
)
_NUMBERS = (b"0", b"65", b"9999", b"99999999999", b"-1")
_TOKEN = re.compile(rb'[:\[,]\s*("(?:[^"\\]|\\.)*"|[-0-9.eE+]+|null|true|false|\{\}|\[\])')
_SIZE = re.compile(rb"[(,](\d+)[),]")


@cache
def originals(stream: str) -> list[CapturedRecord]:
    """All records of the stream that have a value."""
    source = "maxwell" if stream == "json" else stream
    found = dts_stream() if stream == "dts" else records(source)
    return [record for record in found if record.value() is not None]


def reader(stream: str) -> Format:
    """As the worker has it: it knows all table definitions of the stream."""
    made: dict[str, Format] = {
        "canal": Canal(),
        "debezium": Debezium(),
        "maxwell": Maxwell(),
        "dts": DTS(),
        "json": Json(JsonLayout.model_validate(_LAYOUT)),
    }
    format_ = made[STREAMS[stream]]
    if isinstance(format_, SeparateDDL):
        for record in originals(stream):
            format_.learn(record)
    return format_


def mutated(record: CapturedRecord, random: Random) -> CapturedRecord:
    """The record, something of it wrong."""
    key = record.key()
    if key and random.random() < 0.1:
        return replace(record, key_=_mutated(key, random))
    return replace(record, value_=_mutated(record.value() or b"", random))


def _mutated(given: bytes, random: Random) -> bytes:
    text = bytearray(given)
    chosen = random.random()
    if chosen < 0.3 and text:
        for _ in range(random.randint(1, 4)):
            text[random.randrange(len(text))] = random.randrange(256)
    elif chosen < 0.4:
        del text[random.randrange(len(text) + 1) :]
    elif chosen < 0.5:
        begin = random.randrange(len(text) + 1)
        del text[begin : begin + random.randint(1, 20)]
    elif chosen < 0.55:
        begin = random.randrange(len(text) + 1)
        text[begin:begin] = text[begin : begin + random.randint(1, 200)]
    elif chosen < 0.65:
        _exchange(text, _SIZE, _NUMBERS, random)
    else:
        for _ in range(random.randint(1, 2)):
            _exchange(text, _TOKEN, _LITERALS, random)
    return bytes(text)


def _exchange(text: bytearray, what: re.Pattern[bytes], by: tuple[bytes, ...], random: Random) -> None:
    found = list(what.finditer(bytes(text)))
    if found:
        begin, end = random.choice(found).span(1)
        text[begin:end] = random.choice(by)


def try_out(format_: Format, record: CapturedRecord) -> int:
    """All that a worker does with a record before a handler has it. Returns how many changes it holds.

    Raises whatever no format should raise, and AssertionError for a change out of all proportion.
    """
    changes: list[Change] = []
    value = record.value() or b""
    try:
        route = format_.route(value)
        assert isinstance(route.database + route.table, str)
    except Exception:
        pass
    try:
        found = format_.explain(record)
        source_time(format_, record)
        if isinstance(format_, SeparateDDL):
            format_.log_position(record)
        if isinstance(found, Apart):
            return sum(try_out(format_, replace(record, value_=part)) for _, part in found.parts)
        format_.decode(record, changes)
    except UndecodableRecord:
        assert not changes, "something was appended all the same"
        return 0
    for change in changes:
        shard_of(change)
        if change.sql is not None:
            tables_of(change.sql, "shop")
        assert len(line(change, "shop", "t")) <= 100 * len(value) + MOST_GROWTH
    return len(changes)
