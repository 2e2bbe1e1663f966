"""Every captured stream of Debezium, written anew in Avro with a registry, gives the same changes as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol

import pytest
from avro_records import AvroWriter
from captured import CapturedRecord, records
from serialized_records import SerializedWriter
from servers.schema_registry import Registry, SchemaRegistry, schema_registry

from handlers import Change
from worker.formats import json_rows
from worker.formats.debezium.connect.schema import Envelopes
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.decoding import decoded, explained, source_time
from worker.formats.interface import Format, Route, Skip, UndecodableRecord
from worker.formats.schema_registry.format import DebeziumWithRegistry, debezium_with, schemas_of
from worker.formats.schema_registry.settings import SchemaRegistrySettings

WITH_SCHEMAS = ("debezium-schemas", "postgres-schemas")
# The JSON of the others tells no types: they become Avro of a converter without connect.meta.data.
STREAMS = (
    *WITH_SCHEMAS,
    *("debezium-plain", "debezium-strings", "debezium-unwrap", "postgres-plain", "postgres-unwrap"),
)
CONNECTORS = {"debezium-unwrap": "mysql", "postgres-unwrap": "postgresql"}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def reader(registry: Registry, settings: DebeziumSettings, **keys: Any) -> DebeziumWithRegistry:
    asked = SchemaRegistrySettings(url=registry.url, **keys)
    return debezium_with(schemas_of(asked, Path(), patience=10), settings)


def read(format_: Format, record: CapturedRecord) -> tuple[object, ...]:
    """All that a worker has of the record."""
    changes: list[Change] = []
    try:
        found = explained(format_, record)
        where: object = found
        if not isinstance(found, Skip):
            where = found.database, found.table, found.alone
            decoded(format_, record, changes)
    except UndecodableRecord as fault:
        where = str(fault)
    return where, changes, source_time(format_, record), routed(format_, record)


def same(one: object, other: object) -> bool:
    """Equal, where not a number is itself, and a double is as near as a double can be."""
    if isinstance(one, Change) and isinstance(other, Change):
        return all(same(getattr(one, name), getattr(other, name)) for name in Change.__struct_fields__)
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return repr(one) == repr(other) or one == float(other)  # type: ignore[arg-type]
    return type(one) is type(other) and one == other


def routed(format_: Format, record: CapturedRecord) -> object:
    try:
        found: Route = format_.route(record.value())  # type: ignore[arg-type]
    except Exception:
        return None  # `explain` has to say
    return found.database, found.table, found.alone


# Of streams without types one of each connector.
@pytest.mark.parametrize(
    "stream",
    [
        *(*WITH_SCHEMAS, "debezium-unwrap", "postgres-plain"),
        *(
            pytest.param(stream, marks=pytest.mark.soak)
            for stream in ("debezium-plain", "debezium-strings", "postgres-unwrap")
        ),
    ],
)
def test_a_stream_in_avro_gives_the_changes_of_the_stream_in_json(
    stream: str, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first records of each topic, and of each schema."""
    compare(stream, registry, monkeypatch, most=8)


@pytest.mark.soak
@pytest.mark.parametrize("stream", STREAMS)
def test_a_whole_stream_in_avro_gives_the_changes_of_the_stream_in_json(
    stream: str, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(stream, registry, monkeypatch, most=1_000_000)


class Writer(Protocol):
    def record(self, record: CapturedRecord) -> CapturedRecord: ...


Kind = Literal["AVRO", "JSON"]


@pytest.mark.parametrize(
    ("kind", "ids_in", "stream"),
    [
        ("AVRO", "header", "debezium-schemas"),
        ("JSON", "value", "postgres-schemas"),
        pytest.param("AVRO", "header", "postgres-schemas", marks=pytest.mark.soak),
        pytest.param("JSON", "value", "debezium-schemas", marks=pytest.mark.soak),
    ],
)
def test_what_serializers_write_gives_the_changes_of_the_stream_in_json(
    stream: str, kind: Kind, ids_in: str, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluent_kafka's own, with ids before the bytes, and as GUIDs in headers."""
    serialized(stream, kind, ids_in, registry, monkeypatch, most=2)


@pytest.mark.soak
@pytest.mark.parametrize("ids_in", ["value", "header"])
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
@pytest.mark.parametrize("stream", STREAMS)
def test_all_that_serializers_write_gives_the_changes_of_the_stream_in_json(
    stream: str, kind: Kind, ids_in: str, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    serialized(stream, kind, ids_in, registry, monkeypatch, most=40)


def serialized(
    stream: str,
    kind: Kind,
    ids_in: str,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    *,
    most: int,
) -> None:
    writer = SerializedWriter(registry, kind, in_headers=ids_in == "header")
    compare(
        stream, registry, monkeypatch, most=most, writer=writer, is_routed=ids_in == "value", ids_in=ids_in
    )


def compare(
    stream: str,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    *,
    most: int,
    writer: Writer | None = None,
    is_routed: bool = True,
    **keys: Any,
) -> None:
    """`is_routed`: whether values alone can be routed."""
    monkeypatch.setattr(json_rows, "_MET_BEFORE", 2)
    settings = DebeziumSettings(source=CONNECTORS.get(stream))
    of_json, of_others = Debezium(settings), reader(registry, settings, **keys)
    writer, envelopes, met = writer or AvroWriter(registry), Envelopes(), Counter[object]()
    for record in records(stream):
        kind = record.topic(), envelopes.split(record.value() or b"").head
        met[kind] += 1
        if met[kind] > (most if kind[1] is not None else 5 * most):
            continue
        of_json.learn(record)
        again = writer.record(record)
        of_others.learn(again)
        expected, found = read(of_json, record), read(of_others, again)
        assert same(found if is_routed else (*found[:-1], expected[-1]), expected), record
        assert of_others.log_position(again) == of_json.log_position(record)
    assert sum(min(count, most) for count in met.values()) > 15
    if not isinstance(writer, AvroWriter):
        return
    assert of_others._latest or stream not in WITH_SCHEMAS, "no row was read by code for its schema"


def damaged(record: CapturedRecord, random: Random) -> CapturedRecord:
    """With some bytes of its value changed, but for its schema's id, and perhaps its end cut off."""
    value = bytearray(record.value_ or b"")
    for _ in range(random.randint(1, 3)):
        value[random.randrange(5, len(value))] = random.randrange(256)
    end = random.choice((len(value), random.randrange(6, len(value))))
    return replace(record, value_=bytes(value[:end]))


def is_refused(format_: DebeziumWithRegistry, broken: CapturedRecord) -> bool:
    """Whether it is undecodable; nothing else may be raised, whatever is asked of it."""
    refused = False
    try:
        format_.explain(broken)
        format_.decode(broken, [])
    except UndecodableRecord:
        refused = True
    source_time(format_, broken)
    format_.log_position(broken)
    format_.learn(broken)
    return refused


def test_broken_bytes_are_decoded_or_refused(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_rows, "_MET_BEFORE", 1)
    random, writer = Random(7), AvroWriter(registry)
    of_avro = reader(registry, DebeziumSettings())
    whole = [record for stream in WITH_SCHEMAS for record in records(stream) if record.value_]
    refused = 0
    for record in random.sample(whole, 80):
        again = writer.record(record)
        read(of_avro, again)
        refused += sum(is_refused(of_avro, damaged(again, random)) for _ in range(20))
    assert 200 < refused < 1_600
