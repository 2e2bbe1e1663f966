"""Every captured stream of Debezium, written anew in Avro with a registry, gives the same changes as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from avro_records import AvroWriter
from captured import CapturedRecord, records
from servers.schema_registry import SchemaRegistry, schema_registry

from handlers import Change
from worker.formats.debezium.connect.schema import Envelopes
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.decoding import decoded, explained
from worker.formats.interface import Format, Route, Skip, UndecodableRecord
from worker.formats.schema_registry import format as registry_format
from worker.formats.schema_registry.format import DebeziumWithRegistry, schemas_of
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


def reader(registry: SchemaRegistry, settings: DebeziumSettings) -> DebeziumWithRegistry:
    asked = SchemaRegistrySettings(url=registry.url)
    return DebeziumWithRegistry(settings, schemas_of(asked, Path(), patience=10))


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
    return where, changes, format_.source_time_ms(record), routed(format_, record)


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


@pytest.mark.parametrize("stream", STREAMS)
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


def compare(stream: str, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, *, most: int) -> None:
    monkeypatch.setattr(registry_format, "_MESSAGES_BEFORE_CODE", 2)
    settings = DebeziumSettings(source=CONNECTORS.get(stream))
    of_json, of_avro = Debezium(settings), reader(registry, settings)
    writer, envelopes, met = AvroWriter(registry), Envelopes(), Counter[object]()
    for record in records(stream):
        kind = record.topic(), envelopes.split(record.value() or b"").head
        met[kind] += 1
        if met[kind] > (most if kind[1] is not None else 5 * most):
            continue
        of_json.learn(record)
        again = writer.record(record)
        of_avro.learn(again)
        assert same(read(of_avro, again), read(of_json, record)), record
        assert of_avro.log_position(again) == of_json.log_position(record)
    assert sum(min(count, most) for count in met.values()) > 40
    assert of_avro._latest or stream not in WITH_SCHEMAS, "no row was read by code for its schema"


def test_broken_bytes_are_decoded_or_refused(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_format, "_MESSAGES_BEFORE_CODE", 1)
    random, writer = Random(7), AvroWriter(registry)
    of_avro = reader(registry, DebeziumSettings())
    whole = [record for stream in WITH_SCHEMAS for record in records(stream) if record.value_]
    refused = 0
    for record in random.sample(whole, 80):
        again = writer.record(record)
        read(of_avro, again)
        for _ in range(20):
            value = bytearray(again.value_ or b"")
            for _ in range(random.randint(1, 3)):
                value[random.randrange(5, len(value))] = random.randrange(256)
            end = random.choice((len(value), random.randrange(6, len(value))))
            broken = replace(again, value_=bytes(value[:end]))
            try:
                of_avro.explain(broken)
                of_avro.decode(broken, [])
            except UndecodableRecord:  # nothing else
                refused += 1
            of_avro.log_position(broken)
            of_avro.learn(broken)
    assert 200 < refused < 1_600
