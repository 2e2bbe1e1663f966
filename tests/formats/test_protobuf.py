"""Records in Protobuf with a registry: which message they are, what of them is clear, and what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from captured import CapturedRecord
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from formats.test_registry_streams import damaged, is_refused
from formats.test_schema_registry import TEXT, change, envelope, record, row, settings
from google.protobuf import descriptor_pb2
from google.protobuf.message_factory import GetMessageClass
from protobuf_records import Nullables, ProtobufWriter
from servers.schema_registry import SchemaRegistry, schema_registry

from worker.formats.debezium.format import Debezium
from worker.formats.decoding import explained
from worker.formats.interface import UndecodableRecord
from worker.formats.schema_registry.avro.schema import SchemaError
from worker.formats.schema_registry.format import DebeziumWithRegistry, schemas_of
from worker.formats.schema_registry.protobuf.descriptors import (
    ProtobufSchema,
    file_of,
    indexes_at,
    message_of,
)

CONNECT = "org.apache.kafka.connect.data."
FIELD = descriptor_pb2.FieldDescriptorProto
Write = Callable[..., CapturedRecord]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


@pytest.fixture
def reader(registry: SchemaRegistry) -> DebeziumWithRegistry:
    return DebeziumWithRegistry(None, schemas_of(settings(registry), Path(), patience=10))


@pytest.fixture
def write(registry: SchemaRegistry) -> Write:
    """write(after, column, ...): a record of an insert of a row with an id and these columns."""

    def written(
        after: dict[str, Any], *columns: dict[str, Any], nullables: Nullables = "optional"
    ) -> CapturedRecord:
        schema = json.dumps(envelope(*({**one, "optional": True} for one in columns))).encode()
        return record(ProtobufWriter(registry, nullables).written(schema, row(after)))

    return written


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def simple(name: str, *fields: tuple[str, int | str], **more: Any) -> descriptor_pb2.FileDescriptorProto:
    """A file of one message."""
    file = descriptor_pb2.FileDescriptorProto(name="default", package="p", syntax="proto3", **more)
    message = file.message_type.add(name=name)
    for number, (field, kind) in enumerate(fields, 1):
        typed = {"type_name": kind} if isinstance(kind, str) else {"type": kind}
        message.field.add(name=field, number=number, label=FIELD.LABEL_OPTIONAL, **typed)
    return file


# ---- values


def test_connects_own_types_keep_their_meaning(reader: Debezium, write: Write) -> None:
    names = ("Decimal", "Date", "Time", "Timestamp")
    kinds = ("bytes", "int32", "int32", "int64")
    columns = [
        {"type": kind, "field": name.lower(), "name": f"{CONNECT}{name}", "parameters": {"scale": "2"}}
        for name, kind in zip(names, kinds, strict=True)
    ]
    after = {"id": 1, "decimal": "AIY=", "date": -1, "time": 86_399_999, "timestamp": -1}
    found = change(reader, write(after, *columns))
    assert found.after == {
        "id": 1,
        "decimal": Decimal("1.34"),
        "date": date(1969, 12, 31),
        "time": timedelta(seconds=86_399, milliseconds=999),
        "timestamp": datetime(1969, 12, 31, 23, 59, 59, 999_000),
    }
    assert change(reader, write({"id": 1, "decimal": None, "date": None}, *columns)).after == {
        "id": 1, "decimal": None, "date": None, "time": None, "timestamp": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "day"),
    [
        ((1582, 10, 15), date(1582, 10, 15)),
        ((1582, 10, 4), date(1582, 10, 14)),  # the day before, in Java's calendar
        ((1000, 1, 1), date(1000, 1, 6)),
        ((4, 2, 29), date(4, 2, 27)),
        ((9999, 12, 31), date(9999, 12, 31)),
    ],
)
def test_dates_are_those_of_javas_calendar(told: tuple[int, int, int], day: date) -> None:
    file = simple("Value", ("on", ".google.type.Date"), dependency=["google/type/date.proto"])
    schema = ProtobufSchema(serialized(file), [], b"\0\0\0\0\1", 1)
    message = GetMessageClass(message_of(file_of(serialized(file), []), (0,)))()
    message.on.year, message.on.month, message.on.day = told
    payload = schema.split(b"\0\0\0\0\1\0" + message.SerializeToString()).payload
    assert json.loads(bytes(payload)) == {"on": (day - date(1970, 1, 1)).days}


def test_numbers_that_are_none_and_bytes(reader: Debezium, write: Write) -> None:
    columns = [{"type": "double", "field": name} for name in "abc"] + [{"type": "bytes", "field": "d"}]
    after = {"id": 1, "a": "NaN", "b": "-Infinity", "c": 0.5, "d": "AP8="}
    assert repr(change(reader, write(after, *columns)).after) == (
        "{'id': 1, 'a': nan, 'b': -inf, 'c': 0.5, 'd': b'\\x00\\xff'}"
    )


def test_enums_and_maps_of_whoever_wrote_the_schema() -> None:
    file = simple(
        "Value", ("state", 1), ("tags", ".p.Value.TagsEntry"), ("more", ".p.Value.ConnectDefault2Entry")
    )
    message = file.message_type[0]
    message.field[0].type, message.field[0].type_name = FIELD.TYPE_ENUM, ".p.State"
    kind = file.enum_type.add(name="State")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=3)
    for name, field in (("TagsEntry", message.field[1]), ("ConnectDefault2Entry", message.field[2])):
        field.type, field.label = FIELD.TYPE_MESSAGE, FIELD.LABEL_REPEATED
        entry = message.nested_type.add(name=name)
        entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    message.nested_type[0].options.map_entry = True
    schema = ProtobufSchema(serialized(file), [], b"\0\0\0\0\1", 1)
    made = GetMessageClass(message_of(file_of(serialized(file), []), (0,)))(state=3)
    made.tags["a"] = 1
    made.more.add(key="b", value=2)
    head, payload = schema.split(b"\0\0\0\0\1\0" + made.SerializeToString())
    assert json.loads(bytes(payload)) == {"state": "PAID", "tags": {"a": 1}, "more": {"b": 2}}
    assert head is not None
    assert [one["type"] for one in json.loads(head.schema)["fields"]] == ["string", "map", "map"]


# ---- NULL


@pytest.mark.parametrize("nullables", ["optional", "wrapper"])
def test_null_is_not_the_default(reader: Debezium, write: Write, nullables: Nullables) -> None:
    columns = [{**TEXT, "field": "name"}, {"type": "int32", "field": "count"}]
    for after in ({"id": 0, "name": "", "count": 0}, {"id": 0, "name": None, "count": None}):
        assert change(reader, write(after, *columns, nullables=nullables)).after == after


def test_what_may_be_null_or_the_default_is_refused_with_what_to_set(reader: Debezium, write: Write) -> None:
    columns = [{**TEXT, "field": "name"}, {"type": "int32", "field": "count"}]
    clear = {"id": 7, "name": "a", "count": 1}
    assert change(reader, write(clear, *columns, nullables="lost")).after == clear
    for unclear in ({"name": ""}, {"name": None}, {"count": 0}, {"id": 0}):
        [name] = unclear
        with pytest.raises(
            UndecodableRecord, match=rf"{name} is .* or NULL, .*optional\.for\.nullables=true"
        ):
            explained(reader, write(clear | unclear, *columns, nullables="lost"))


def test_a_flattened_row_is_one_whatever_its_schema_is_called() -> None:
    """As SetSchemaMetadata calls it; and of one without a name, which the converter calls so."""
    for name in ("Value", "Order", "ConnectDefault1"):
        file = simple(name, ("id", FIELD.TYPE_INT64), ("name", FIELD.TYPE_STRING))
        schema = ProtobufSchema(serialized(file), [], b"\0\0\0\0\1", 1)
        with pytest.raises(UndecodableRecord, match="name is '' or NULL"):
            schema.split(b"\0\0\0\0\1\0\x08\x07")


def test_a_key_has_no_null() -> None:
    for name, is_clear in (("Key", True), ("Value", False)):
        schema = ProtobufSchema(serialized(simple(name, ("id", FIELD.TYPE_INT64))), [], b"\0\0\0\0\1", 1)
        if is_clear:
            assert bytes(schema.split(b"\0\0\0\0\1\0").payload) == b'{"id":0}'
        else:
            with pytest.raises(UndecodableRecord, match="id is 0 or NULL"):
                schema.split(b"\0\0\0\0\1\0")


def test_an_array_that_may_be_null_is_refused(reader: Debezium, write: Write) -> None:
    column = {"type": "array", "items": {"type": "int32"}, "field": "n"}
    columns = [column, {**TEXT, "field": "name"}]
    after = {"id": 1, "n": [3, 0], "name": None}
    assert change(reader, write(after, *columns)).after == after
    for unclear in ([], None):
        with pytest.raises(UndecodableRecord, match=r"n is empty or NULL, .*column\.exclude\.list"):
            explained(reader, write({**after, "n": unclear}, *columns))


def test_an_entry_of_a_map_that_may_be_null_is_refused(reader: Debezium, write: Write) -> None:
    column = {"type": "map", "keys": TEXT, "values": {**TEXT, "optional": True}, "field": "h"}
    for nullables, tags in (("optional", {"a": "", "b": None}), ("lost", {"a": "x"})):
        after = {"id": 1, "h": tags}
        assert change(reader, write(after, column, nullables=nullables)).after == after
    with pytest.raises(UndecodableRecord, match="value is '' or NULL"):
        explained(reader, write({"id": 1, "h": {"a": ""}}, column, nullables="lost"))


# ---- what others may write


def split_of(file: descriptor_pb2.FileDescriptorProto, message: bytes) -> Any:
    schema = ProtobufSchema(serialized(file), [], b"\0\0\0\0\1", 1)
    return json.loads(bytes(schema.split(b"\0\0\0\0\1\0" + message).payload))


def test_names_that_python_has_too_are_names() -> None:
    names = ("HasField", "DESCRIPTOR", "FromString", "class", "__class__", "Clear")
    file = simple("Value", *((name, FIELD.TYPE_INT32) for name in names))
    for number, field in enumerate(file.message_type[0].field):
        field.proto3_optional, field.oneof_index = True, number
        file.message_type[0].oneof_decl.add(name=f"_{field.name}")
    assert split_of(file, b"\x08\x01\x20\x05") == {**dict.fromkeys(names), "HasField": 1, "class": 5}


def test_a_text_that_is_none_is_refused() -> None:
    file = simple("Value", ("s", FIELD.TYPE_STRING))
    file.ClearField("syntax")
    assert split_of(file, b"\x0a\x01a") == {"s": "a"}
    with pytest.raises(UndecodableRecord, match="not UTF-8"):
        split_of(file, b"\x0a\x01\xff")


def test_a_message_that_is_only_called_as_a_known_one_is_a_struct() -> None:
    file = simple("Value", ("on", ".google.type.Date"), dependency=["date.proto"])
    other = simple("Date", ("year", FIELD.TYPE_STRING))
    other.package = "google.type"
    schema = ProtobufSchema(serialized(file), [("date.proto", serialized(other))], b"\0\0\0\0\1", 1)
    found = schema.split(b"\0\0\0\0\1\0\x0a\x03\x0a\x01x")
    assert bytes(found.payload) == b'{"on":{"year":"x"}}'


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (("google.type.Date", {"year": 1500, "month": 2, "day": 30}), "no date: 1500-2-30"),
        (("google.type.Date", {"year": 1900, "month": 2, "day": 29}), "no date: 1900-2-29"),
        (("google.type.Date", {}), "no date: 0-0-0"),
        (("google.type.TimeOfDay", {"hours": 25}), "not a time of day"),
        (("google.type.TimeOfDay", {"minutes": 60}), "not a time of day"),
        (("google.protobuf.UInt64Value", {"value": 2**63}), "beyond 63 bits"),
    ],
)
def test_values_that_are_none_are_refused(parts: tuple[str, dict[str, int]], told: str) -> None:
    name, fields = parts
    file = simple("Value", ("v", f".{name}"))
    file.dependency.extend(
        {
            "Date": ["google/type/date.proto"],
            "TimeOfDay": ["google/type/timeofday.proto"],
            "UInt64Value": ["google/protobuf/wrappers.proto"],
        }[name.rpartition(".")[2]]
    )
    made = GetMessageClass(message_of(file_of(serialized(file), []), (0,)))()
    made.v.SetInParent()
    for field, value in fields.items():
        setattr(made.v, field, value)
    with pytest.raises(UndecodableRecord, match=told):
        split_of(file, made.SerializeToString())


def test_a_date_beyond_pythons_is_what_it_is_in_json(reader: Debezium, write: Write) -> None:
    file = simple("Value", ("on", ".google.type.Date"), dependency=["google/type/date.proto"])
    made = GetMessageClass(message_of(file_of(serialized(file), []), (0,)))()
    made.on.year, made.on.month, made.on.day = 10_000, 1, 1
    assert split_of(file, made.SerializeToString()) == {"on": (date.max - date(1970, 1, 1)).days + 1}


def test_many_empty_items_take_no_memory() -> None:
    """Two bytes each; their fields that are not there would be hundreds."""
    file = simple("Value", ("items", ".p.Item"))
    file.message_type[0].field[0].label = FIELD.LABEL_REPEATED
    item = file.message_type.add(name="Item")
    for number in range(1, 101):
        item.field.add(name=f"column_{number}", number=number, type=9, label=FIELD.LABEL_OPTIONAL)
    assert len(split_of(file, b"\x0a\x00" * 1000)["items"]) == 1000
    with pytest.raises(UndecodableRecord, match="more than 64 MiB"):
        split_of(file, b"\x0a\x00" * 100_000)


def test_schemas_of_messages_within_messages_take_no_time() -> None:
    own = simple("A", *((f"f{number}", ".p.A") for number in range(40)))
    wide = simple("L0", ("x", FIELD.TYPE_INT32))
    for level in range(1, 9):
        message = wide.message_type.add(name=f"L{level}")
        for number in range(1, 9):
            message.field.add(
                name=f"f{number}", number=number, type_name=f".p.L{level - 1}", label=FIELD.LABEL_OPTIONAL
            )
    wide.message_type.add(name="Last").CopyFrom(wide.message_type[-1])
    del wide.message_type[-1]
    wide.message_type.insert(0, wide.message_type.pop())
    for file, told in ((own, "contains itself"), (wide, "more than 20000 fields")):
        with pytest.raises(SchemaError, match=told):
            ProtobufSchema(serialized(file), [], b"\0\0\0\0\1", 1)


# ---- which message


def test_the_indexes_of_a_message() -> None:
    assert indexes_at(b"\0rest", 0) == ((0,), 1)
    assert indexes_at(bytes((4, 2, 0)) + b"rest", 0) == ((1, 0), 3)
    assert indexes_at(bytes((2, 0x80, 1)), 0) == ((64,), 3)
    for broken in (b"", b"\x02", b"\x01", b"\x82\x01", b"\x80" * 9, b"\xff\xff\xff\xff\x0f"):
        with pytest.raises(ValueError, match="index"):
            indexes_at(broken, 0)


def test_other_messages_of_a_file_are_read_by_their_indexes(registry: SchemaRegistry) -> None:
    """As confluent_kafka's own serializer writes them."""
    file = simple("First", ("a", FIELD.TYPE_INT32))
    second = file.message_type.add(name="Second")
    inner = second.nested_type.add(name="Key")
    inner.field.add(name="id", number=1, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    made = GetMessageClass(message_of(file_of(serialized(file), []), (1, 0)))
    client = SchemaRegistryClient({"url": registry.url})
    serializer = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    value = serializer(made(id=5), SerializationContext("t", MessageField.VALUE))
    schemas = schemas_of(settings(registry), Path(), patience=10)
    assert bytes(schemas.get(value[:5]).split(value).payload) == b'{"id":5}'
    for path in (b"\x02\x04", b"\x04\x02\x02", b"\x02\x01"):
        with pytest.raises(UndecodableRecord, match="has no message"):
            schemas.get(value[:5]).split(value[:5] + path + b"\x08\x05")


def test_what_a_schema_imports_is_asked_for(registry: SchemaRegistry) -> None:
    base = simple("Money", ("units", FIELD.TYPE_INT64))
    base.package = "q"
    registry.register("// base", "PROTOBUF", subject="base", serialized=serialized(base))
    file = simple("Key", ("price", ".q.Money"), dependency=["money.proto"])
    reference = {"name": "money.proto", "subject": "base", "version": 1}
    number = registry.register("// file", "PROTOBUF", references=[reference], serialized=serialized(file))
    schemas = schemas_of(settings(registry), Path(), patience=10)
    head = b"\0" + number.to_bytes(4, "big")
    found = schemas.get(head).split(head + b"\0" + b"\x0a\x02\x08\x07")
    assert bytes(found.payload) == b'{"price":{"units":7}}'
    assert registry.asked[-1] == "/subjects/base/versions/1?format=serialized"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('syntax = "proto3"; message A {}', r"as text, .*\?format=serialized"),
        ("AAAA", "no schema|as text"),
        (serialized(simple("A", ("b", ".q.B"), dependency=["q.proto"])), "imports q.proto"),
        (serialized(simple("A", ("b", ".p.Nothing"))), "not a Protobuf schema"),
        (serialized(descriptor_pb2.FileDescriptorProto(name="f", syntax="proto3")), "has no message 0"),
        (serialized(simple("A", ("a", ".p.A"), ("b", ".p.A"))), "a message contains itself"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(text: str, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        ProtobufSchema(text, [], b"\0\0\0\0\1", 1)


def test_broken_bytes_are_decoded_or_refused(reader: DebeziumWithRegistry, write: Write) -> None:
    columns = [
        {**TEXT, "field": "name"},
        {"type": "bytes", "field": "d", "name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}},
    ]
    whole = write({"id": 1, "name": "né", "d": "AIY="}, *columns)
    random = Random(7)
    refused = sum(is_refused(reader, damaged(whole, random)) for _ in range(1500))
    assert 300 < refused < 1500
