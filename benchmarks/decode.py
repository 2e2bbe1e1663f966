"""Records per second that each format decodes fully, in one thread."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

import orjson
from confluent_kafka import Message
from pydantic import BaseModel, ConfigDict, Field, Json

from benchmarks.context import Context
from benchmarks.decode_records import AVRO_SCHEMA, VALUES, Encode, message
from benchmarks.decode_table import DEFINITIONS
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.topics import canal_value
from handlers import Change
from worker.formats import registry
from worker.formats.interface import Format, Record, SeparateDDL
from worker.formats.own_json.layout import JsonLayout
from worker.formats.schema_registry.client import Client, Registered
from worker.formats.schema_registry.schemas import Schemas

__all__ = ["run"]

_SIZE = 1_024
_SMALL = "canal, 5 columns"
_CANAL_RATE = 300_000
_ROUNDS = 5
_LAYOUT = {
    "database": "db",
    "table": "tbl",
    "operation": "op",
    "operations": {"c": "insert", "u": "update", "d": "delete"},
    "key": ["id"],
    "after": "row",
    "time": "ts",
}


class _CanalRow(BaseModel):
    id: int
    customer_id: int
    status: str
    total: Decimal
    vip: int
    note: str
    placed_at: datetime
    updated_at: datetime
    meta: str


class _CanalMessage(BaseModel):
    model_config = ConfigDict(extra="ignore")
    data: list[_CanalRow]
    database: str
    table: str
    type: str
    es: int
    is_ddl: bool = Field(alias="isDdl")
    keys: list[str] = Field(alias="pkNames")
    types: dict[str, str] = Field(alias="mysqlType")


class _ConnectRow(BaseModel):
    id: int
    customer_id: int
    status: str
    total: str
    vip: int
    note: str
    placed_at: int
    updated_at: datetime
    meta: Json[Any]


class _Source(BaseModel):
    db: str
    table: str
    ts_ms: int


class _Envelope(BaseModel):
    before: _ConnectRow | None
    after: _ConnectRow | None
    source: _Source
    op: str


class _WithSchema(BaseModel):
    payload: _Envelope


_MODELS: dict[str, type[BaseModel]] = {
    "canal": _CanalMessage,
    "debezium": _Envelope,
    "debezium, with schemas": _WithSchema,
}


def run(context: Context) -> Report:
    """Decode one row in each tool's format into typed changes, beside plain parsers."""
    count = context.pick(20_000, 1_000)
    report = Report(
        "decode",
        f"Decoding: the same row of 9 columns in each tool's format, {count:,} records, one thread",
        {
            "what": "Format",
            "bytes": "Bytes",
            "rate": "Changes/s",
            "orjson": "orjson alone",
            "pydantic": "A pydantic model",
            "of_orjson": "/ orjson",
        },
    )
    for name, encode in VALUES.items():
        _measure(report, name, encode, count, _SIZE)
    rates = {row["what"]: float(row["rate"]) for row in report.rows}
    report.goals.append(
        at_least(1.0, rates["debezium, avro"] / rates["debezium"], "of JSON's rate", "Debezium in Avro")
    )
    small = _measure(report, _SMALL, lambda number, _: canal_value(number, 1, number), count, 0)
    report.goals.append(at_least(_CANAL_RATE, small, "changes/s", "a full Canal decode, 5 columns"))
    report.notes.append(
        f"Best of {_ROUNDS} rounds. The row is padded until the record has about {_SIZE:,} bytes. Not "
        "padded: records with Debezium's schemas, and canal with 5 columns. orjson only parses, and cannot "
        "read Avro. The pydantic models read numbers, times and decimals as far as pydantic can without "
        "extra code."
    )
    return report


def _measure(report: Report, name: str, encode: Encode, count: int, size: int) -> float:
    records, values = _records(name, encode, count, size)
    kind = name.partition(",")[0]
    format_ = registry.get(kind, JsonLayout.model_validate(_LAYOUT), schemas=_schemas(name))
    if kind in DEFINITIONS:
        cast(SeparateDDL, format_).learn(cast(Record, message(DEFINITIONS[kind], 0, topic="ddl")))
    rate = count / _best(lambda: _decode(format_, records))
    parsed = None if name in ("dts", "debezium, avro") else count / _best(lambda: _each(orjson.loads, values))
    model = _MODELS.get(name)
    modelled = count / _best(lambda: _each(model.model_validate_json, values)) if model is not None else None
    report.row(
        what=name,
        bytes=len(values[0]),
        rate=rate,
        orjson=parsed,
        pydantic=modelled,
        of_orjson=None if parsed is None else rate / parsed,
    )
    return rate


class _Registry:
    """A registry with one schema."""

    def schema(self, _named: object) -> Registered:
        return Registered("AVRO", json.dumps(AVRO_SCHEMA))


def _schemas(name: str) -> Schemas | None:
    return Schemas(lambda: cast(Client, _Registry())) if name.endswith("avro") else None


def _records(name: str, encode: Encode, count: int, size: int) -> tuple[Sequence[Message], list[bytes]]:
    padding = "x" * max(0, size - len(encode(count, "")))
    values = [encode(number, padding) for number in range(1, count + 1)]
    # Debezium's key columns are those of the record's key.
    keyed = name.startswith("debezium")
    made = [
        message(value, number, key=b'{"id":%d}' % number if keyed else None)
        for number, value in enumerate(values, 1)
    ]
    return made, values


def _decode(format_: Format, records: Sequence[Message]) -> None:
    changes: list[Change] = []
    decode = format_.decode
    for record in records:
        decode(cast(Record, record), changes)
    if len(changes) != len(records) or changes[-1].after is None or len(changes[-1].after) < 5:
        raise BenchmarkError(f"{format_.name} made {len(changes)} changes of {len(records)} records")


def _each(parse: Callable[[bytes], object], values: list[bytes]) -> None:
    for value in values:
        parse(value)


def _best(measured: Callable[[], None]) -> float:
    """Return the seconds of the fastest round. The first round warms up."""
    seconds = []
    for _ in range(_ROUNDS + 1):
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        measured()
        seconds.append(time.perf_counter() - begin)
        gc.enable()
    return min(seconds[1:])
