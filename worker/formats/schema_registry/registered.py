"""A registered schema, prepared to convert the bytes of its records to Kafka Connect's JSON.

Records of a JSON Schema of Confluent's JsonSchemaConverter are the schema's id and JSON.

https://github.com/confluentinc/schema-registry/blob/master/json-schema-converter/src/main/java/io/confluent/connect/json/JsonSchemaData.java
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from worker.formats.debezium.connect.schema import Head, Split
from worker.formats.interface import UndecodableRecord, shortened
from worker.formats.schema_registry.avro.connect import connect_schema
from worker.formats.schema_registry.avro.envelopes import AvroEnvelope, envelope_of
from worker.formats.schema_registry.avro.schema import FieldBudget, SchemaError, parse
from worker.formats.schema_registry.avro.values import READ_ERRORS, reader_of
from worker.formats.schema_registry.client import Registered

MEMORY_OF_TEXT = 10
"""Bytes of memory that a prepared schema takes for each byte of text. A head is kept unchanged."""


@dataclass(eq=False, slots=True)
class RegisteredSchema:
    """A prepared schema. Immutable, so threads share it."""

    number: int
    head: Head
    split: Callable[[bytes], Split]
    """Splits a value of this schema. Raises UndecodableRecord for any other value."""
    envelope: AvroEnvelope | None = None
    """The envelope, for rows in Avro."""
    _: KW_ONLY
    weight: int
    """Bytes. The schema takes about MEMORY_OF_TEXT times as much memory."""


def read(registered: Registered, prefix: bytes) -> RegisteredSchema:
    """Prepare a schema. `prefix`: the first bytes of its records. Raises SchemaError."""
    number = int.from_bytes(prefix[1:], "big")
    if registered.kind == "AVRO":
        return _avro(registered, prefix, number)
    if registered.kind == "JSON":
        head = json_head(registered, prefix)
        size = len(prefix)
        split: Callable[[bytes], Split] = lambda value: Split(head, memoryview(value)[size:])  # noqa: E731
        return RegisteredSchema(number, head, split, weight=_weight(registered, head))
    if registered.kind == "PROTOBUF":
        # Imported here, because Avro needs no Protobuf.
        from worker.formats.schema_registry.protobuf.descriptors import ProtobufSchema  # noqa: PLC0415

        references = list(zip(registered.names, registered.references, strict=True))
        schema = ProtobufSchema(registered.text, references, prefix, number)
        return RegisteredSchema(number, schema.head, schema.split, weight=schema.weight)
    raise SchemaError(
        f"a schema of kind {registered.kind[:20]}: only Avro, JSON Schema and Protobuf are read; let the "
        "connector write one of them (value.converter)"
    )


def _avro(registered: Registered, prefix: bytes, number: int) -> RegisteredSchema:
    schema = parse(registered.text, registered.references)
    try:
        values, head = reader_of(schema), Head(prefix, connect_schema(schema), closes=None)
        envelope = envelope_of(schema)
    except RecursionError:
        raise SchemaError("too many nested types") from None
    start = len(prefix)
    encode = msgspec.json.Encoder().encode

    def split(value: bytes) -> Split:
        try:
            found, end = values(value, start)
            if end != len(value):
                raise ValueError(f"its end is at byte {end} of {len(value)}")
        except READ_ERRORS as error:
            raise UndecodableRecord(f"the bytes do not match their schema ({number}): {error}") from None
        return Split(head, encode(found))

    return RegisteredSchema(number, head, split, envelope, weight=_weight(registered, head))


def _weight(registered: Registered, head: Head) -> int:
    texts = len(registered.text) + sum(map(len, registered.references))
    return texts + len(head.schema) // MEMORY_OF_TEXT


_TYPES = {"integer": "int64", "number": "double", "object": "struct", "float32": "float", "float64": "double"}
_DEPTH = 5
_MOST_STEPS = 32
"""Most consecutive references to references, or nested unions."""


def json_head(registered: Registered, prefix: bytes) -> Head:
    """The head of values, with the Connect schema of the JSON after it. Raises SchemaError."""
    root = _object_of(registered.text)
    schema = b"null"
    if any('"connect.' in text for text in (registered.text, *registered.references)):
        schema = msgspec.json.encode(_Reader(registered).field(root, root, _DEPTH))
    return Head(prefix, schema, closes=b"")


class _Place(NamedTuple):
    """A schema, and the document that contains it. The schema's references are relative to the document."""

    node: Mapping[str, Any]
    root: Mapping[str, Any]


class _Reader:
    """A reader of one schema and the schemas that it refers to."""

    def __init__(self, registered: Registered) -> None:
        """Raises SchemaError."""
        self._texts: dict[str, str] = {}
        for name, text in zip(registered.names, registered.references, strict=True):
            if self._texts.setdefault(name, text) != text:
                raise SchemaError(f"two of its references are called {shortened(repr(name))}")
        self._documents: dict[str, Mapping[str, Any]] = {}
        self._places: dict[int, _Place] = {}
        self._budget = FieldBudget()

    def field(self, node: Any, root: Mapping[str, Any], depth: int, **names: Any) -> dict[str, Any]:
        """The Connect field for a schema. `names`: further entries from the object that contains it."""
        node, root = self._value(node, root)
        kind = node.get("connect.type") or node.get("type")
        found: dict[str, Any] = {"type": _TYPES.get(str(kind), str(kind or "")), **names}
        if isinstance(node.get("title"), str):
            found["name"] = node["title"]
        parameters = node.get("connect.parameters")
        if isinstance(parameters, dict):
            found["parameters"] = {str(key): str(value) for key, value in parameters.items()}
        self._budget.take(found)
        properties = node.get("properties")
        if depth and isinstance(properties, dict) and found["type"] == "struct":
            parts = sorted(properties.items(), key=lambda part: self._index(part[1], root))
            found["fields"] = [
                self.field(each, root, depth - 1, field=name, default=self._default(each, root))
                for name, each in parts
            ]
        if depth and kind == "array" and node.get("items") is not None:
            found["items"] = self.field(node["items"], root, depth - 1)
        return found

    def _index(self, node: Any, root: Mapping[str, Any]) -> int:
        for each in (node, self._value(node, root).node):
            found = each.get("connect.index") if isinstance(each, dict) else None
            if isinstance(found, int):
                return found
        return 1 << 20

    def _default(self, node: Any, root: Mapping[str, Any]) -> Any:
        for each in (node, self._value(node, root).node):
            found = each.get("default") if isinstance(each, dict) else None
            if found is not None and not isinstance(found, dict | list):
                return found
        return None

    # ---- references

    def _value(self, node: Any, root: Mapping[str, Any]) -> _Place:
        """The schema without null in its union, after following its references."""
        place = self._places.get(id(node))
        if place is None:
            place = self._places[id(node)] = self._followed(node, root)
        return place

    def _followed(self, node: Any, root: Mapping[str, Any]) -> _Place:
        for _ in range(_MOST_STEPS):
            if not isinstance(node, dict):
                return _Place({}, root)
            branches = node.get("oneOf") or node.get("anyOf")
            if isinstance(branches, list):
                node = next((each for each in branches if each != {"type": "null"}), {})
                continue
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return _Place(node, root)
            node, root = self._referred(reference, root)
        raise SchemaError(f"references form a circle, or a chain of more than {_MOST_STEPS}")

    def _referred(self, reference: str, root: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """The target of a reference, and the document that contains it."""
        name, _, path = reference.partition("#")
        if name and name != root.get("$id"):
            root = self._document(name)
        node: Any = root
        for part in path.split("/")[1:]:
            node = _part(node, part)
        if node is None or (path and not path.startswith("/")):
            raise SchemaError(f"it refers to {shortened(repr(reference))}, which does not exist")
        return node, root

    def _document(self, name: str) -> Mapping[str, Any]:
        if name not in self._documents:
            text = self._texts.get(name)
            if text is None:
                raise SchemaError(f"it refers to {shortened(repr(name))}, which names none of its references")
            self._documents[name] = _object_of(text)
        return self._documents[name]


def _object_of(text: str) -> Mapping[str, Any]:
    try:
        node: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError(f"no JSON: {error}") from None
    if not isinstance(node, dict):
        raise SchemaError("a JSON Schema must be an object")
    return node


def _part(node: Any, part: str) -> Any:
    """Follow one step of a JSON Pointer. None if no such part exists."""
    if isinstance(node, list):
        return node[int(part)] if part.isdecimal() and len(part) < 10 and int(part) < len(node) else None
    if not isinstance(node, dict):
        return None
    found = node.get(part)
    return found if found is not None else node.get(unquote(part).replace("~1", "/").replace("~0", "~"))
