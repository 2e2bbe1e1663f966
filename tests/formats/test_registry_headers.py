"""Records whose schemas are named in headers: Confluent's GUIDs, Apicurio's ids; what is refused, and how."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from avro_records import AvroWriter, avro_schema
from captured import CapturedRecord
from servers.schema_registry import SchemaRegistry, guid_of, schema_registry
from test_schema_registry import change, envelope, record, row, until

from worker.formats.decoding import explained
from worker.formats.interface import Skip, UndecodableRecord
from worker.formats.schema_registry.format import DebeziumWithRegistry, debezium_with, schemas_of
from worker.formats.schema_registry.settings import SchemaRegistrySettings

SCHEMA = json.dumps(envelope()).encode()
HEAD = 5


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def reader(registry: SchemaRegistry, **keys: Any) -> DebeziumWithRegistry:
    asked = SchemaRegistrySettings.model_validate({"url": registry.url, "ids_in": "header", **keys})
    return debezium_with(schemas_of(asked, Path(), patience=10), None)


def in_header(written: bytes, name: str = "__value_schema_id", told: bytes | None = None) -> CapturedRecord:
    number = int.from_bytes(written[1:HEAD], "big")
    told = b"\1" + guid_of(number).bytes if told is None else told
    return replace(record(written[HEAD:]), headers_=[("traceparent", b"00"), (name, told)])


def test_a_guid_in_a_header_names_the_schema_also_of_an_insert_which_begins_as_an_id_does(
    registry: SchemaRegistry,
) -> None:
    """`before` is null: the first byte of its Avro is a zero."""
    format_, writer = reader(registry), AvroWriter(registry)
    one = in_header(writer.written(SCHEMA, row({"id": 4})))
    assert (one.value_ or b"")[:1] == b"\0"
    assert change(format_, one).after == {"id": 4}
    assert registry.asked == [f"/schemas/guids/{guid_of(1)}"], "no id was read from the value"
    again = in_header(writer.written(SCHEMA, row({"id": 6}, {"id": 6})))
    assert change(format_, again).before == {"id": 6}
    assert len(registry.asked) == 1


def test_a_value_alone_is_never_routed_by_what_it_begins_with(registry: SchemaRegistry) -> None:
    """It may begin with a zero and four bytes that are no id: the thread that polls would wait for that."""
    format_ = reader(registry)
    one = in_header(AvroWriter(registry).written(SCHEMA, row({"id": 4})))
    with pytest.raises(LookupError, match="headers describe"):
        format_.route(one.value_)  # type: ignore[arg-type]
    assert registry.asked == []


def test_records_without_such_headers_are_read_as_ever(registry: SchemaRegistry) -> None:
    format_ = reader(registry)
    framed = AvroWriter(registry).written(SCHEMA, row({"id": 4}))
    assert change(format_, record(framed)).after == {"id": 4}
    assert change(format_, record(json.dumps(row({"id": 5})).encode())).after == {"id": 5}
    assert isinstance(explained(format_, record(None)), Skip)


def test_the_key_in_a_header_is_waited_for_too(registry: SchemaRegistry) -> None:
    format_, writer = reader(registry), AvroWriter(registry)
    one = in_header(writer.written(SCHEMA, row({"id": 4})))
    key_schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}], "name": "k"}
    key = writer.written(json.dumps(key_schema).encode(), {"id": 4})
    number = int.from_bytes(key[1:HEAD], "big")
    told = ("__key_schema_id", b"\1" + guid_of(number).bytes)
    change(format_, one)
    keyed = replace(one, key_=key[HEAD:], headers_=[*one.headers_, told])
    assert format_.ready([one, keyed, one]) == 1
    until(lambda: format_.ready([one, keyed, one]) == 3)
    assert change(format_, keyed).key_columns == ("id",)


@pytest.mark.parametrize("kind", ["content", "global"])
def test_apicurios_headers_tell_which_of_its_ids_they_hold(registry: SchemaRegistry, kind: str) -> None:
    place = f"/ids/{kind}Ids/7"
    answers = {place: avro_schema(envelope()), f"{place}/references": []}
    registry.answer = lambda path: (200, answers[path])  # type: ignore[method-assign]
    written = AvroWriter(registry).written(SCHEMA, row({"id": 4}))
    one = in_header(written, f"apicurio.value.{kind}Id", (7).to_bytes(8, "big"))
    assert change(reader(registry, api="apicurio"), one).after == {"id": 4}
    assert registry.asked == list(answers)


@pytest.mark.parametrize(
    ("name", "told", "keys", "error"),
    [
        (
            "apicurio.value.contentHash",
            b"c0ffee",
            {},
            "by its hash: let the connector write ids",
        ),
        ("apicurio.value.encoding", b"JSON", {}, "let the connector write the binary encoding"),
        (
            "__value_schema_id",
            b"\1" + b"7" * 15,
            {},
            "the header __value_schema_id does not contain a schema's GUID",
        ),
        (
            "__value_schema_id",
            b"\0" + b"7" * 16,
            {},
            "the header __value_schema_id does not contain a schema's GUID",
        ),
        ("__value_schema_id", b"\1" + b"7" * 16 + b"\0", {}, "contains more than a GUID"),
        (
            "apicurio.key.globalId",
            b"7",
            {},
            "the header apicurio.key.globalId does not contain an id of 8 bytes",
        ),
        ("apicurio.value.globalId", bytes(7) + b"\1", {}, "set schema_registry.api: apicurio"),
        ("__value_schema_id", b"\1" + b"7" * 16, {"api": "apicurio"}, "set schema_registry.api: confluent"),
        ("__value_schema_id", b"\1" + b"7" * 16, {"ids_in": "value"}, "set schema_registry.ids_in: header"),
    ],
)
def test_a_header_that_names_no_schema_says_what_to_do(
    registry: SchemaRegistry, name: str, told: bytes, keys: dict[str, Any], error: str
) -> None:
    format_ = reader(registry, **keys)
    one = replace(record(b"\2\2\2"), headers_=[(name, told)])
    until(lambda: format_.ready([one]) == 1)
    with pytest.raises(UndecodableRecord, match=error):
        explained(format_, one)
    assert format_.log_position(one) is None
    format_.learn(one)


def test_another_connectors_records_are_refused_however_often_a_table_was_met(
    registry: SchemaRegistry,
) -> None:
    format_, writer = reader(registry), AvroWriter(registry)
    for _ in range(2):
        explained(format_, in_header(writer.written(SCHEMA, row({"id": 4}))))
        with pytest.raises(UndecodableRecord, match="oracle"):
            explained(
                format_, in_header(writer.written(SCHEMA, row({"id": 4}, table="t2", connector="oracle")))
            )


@pytest.mark.parametrize("mark", [b"\2", b"\3"])
@pytest.mark.parametrize("part", ["key_", "value_"])
def test_what_begins_as_a_header_is_put_before_it_is_no_head(
    registry: SchemaRegistry, mark: bytes, part: str
) -> None:
    """Bytes of another producer: they name no schema, and none is asked for."""
    format_, written = reader(registry), AvroWriter(registry).written(SCHEMA, row({"id": 4}))
    foreign = mark + bytes(3) + written
    one = replace(record(written), **{part: foreign})
    until(lambda: format_.ready([one]) == 1)
    asked = list(registry.asked)
    with pytest.raises(UndecodableRecord, match=f"begins with byte {mark[0]}"):
        explained(format_, one)
    assert registry.asked == asked
    assert not [path for path in asked if path != "/schemas/ids/1"]
