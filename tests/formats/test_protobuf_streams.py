"""Captured streams of Debezium, written anew in Protobuf with a registry, give the changes of what is left of
them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from captured import CapturedRecord, records
from formats.test_registry_streams import read, reader, same
from protobuf_records import Nullables, NullItem, ProtobufWriter, forgotten
from servers.schema_registry import SchemaRegistry, schema_registry

from worker.formats.debezium.connect.schema import Envelopes
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings

STREAMS = ("debezium-schemas", "postgres-schemas")


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def left_of(record: CapturedRecord) -> CapturedRecord:
    """The record in JSON, without what the converter forgets."""

    def left(value: bytes | None) -> bytes | None:
        told = None if value is None else json.loads(value)
        if not told or told["payload"] is None:
            return value
        schema, payload = forgotten(told["schema"], told["payload"])
        return json.dumps({"schema": schema, "payload": payload}).encode()

    return replace(record, key_=left(record.key_), value_=left(record.value_))


def first_of_each(stream: str, most: int) -> Iterator[CapturedRecord]:
    envelopes, met = Envelopes(), Counter[Any]()
    for record in records(stream):
        kind = record.topic(), envelopes.split(record.value() or b"").head
        met[kind] += 1
        if met[kind] <= most:
            yield record


@pytest.mark.parametrize("nullables", ["optional", "wrapper"])
@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_in_protobuf_gives_the_changes_that_are_left(
    stream: str, nullables: Nullables, registry: SchemaRegistry
) -> None:
    settings = DebeziumSettings()
    of_json, of_protobuf = Debezium(settings), reader(registry, settings)
    writer, seen, empty = ProtobufWriter(registry, nullables), 0, 0
    for record in first_of_each(stream, 4):
        try:
            left, again = left_of(record), writer.record(record)
        except NullItem:
            continue
        of_json.learn(left)
        of_protobuf.learn(again)
        expected, found = read(of_json, left), read(of_protobuf, again)
        if isinstance(found[0], str) and "is empty or NULL" in found[0]:
            empty += 1
            continue
        assert same(found, expected), record
        assert of_protobuf.log_position(again) == of_json.log_position(left)
        seen += 1
    assert seen > 40
    assert empty == 0 or stream.startswith("postgres")
