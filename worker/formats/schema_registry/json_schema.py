"""Convert a JSON Schema of Confluent's JsonSchemaConverter to the schema of Kafka Connect. Its records are
the schema's id and JSON.

https://github.com/confluentinc/schema-registry/blob/master/json-schema-converter/src/main/java/io/confluent/connect/json/JsonSchemaData.java
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from worker.formats.debezium.connect.schema import Head
from worker.formats.schema_registry.avro.schema import SchemaError
from worker.formats.schema_registry.avro.weights import FieldBudget
from worker.formats.schema_registry.client import Registered

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

    told: Mapping[str, Any]
    root: Mapping[str, Any]


class _Reader:
    """A reader of one schema and the schemas that it refers to."""

    def __init__(self, registered: Registered) -> None:
        """Raises SchemaError."""
        self._texts: dict[str, str] = {}
        for name, text in zip(registered.names, registered.references, strict=True):
            if self._texts.setdefault(name, text) != text:
                raise SchemaError(f"two of its references are called {_shown(name)}")
        self._documents: dict[str, Mapping[str, Any]] = {}
        self._places: dict[int, _Place] = {}
        self._budget = FieldBudget()

    def field(self, told: Any, root: Mapping[str, Any], depth: int, **names: Any) -> dict[str, Any]:
        """The Connect field for a schema. `names`: further entries from the object that contains it."""
        told, root = self._value(told, root)
        kind = told.get("connect.type") or told.get("type")
        found: dict[str, Any] = {"type": _TYPES.get(str(kind), str(kind or "")), **names}
        if isinstance(told.get("title"), str):
            found["name"] = told["title"]
        parameters = told.get("connect.parameters")
        if isinstance(parameters, dict):
            found["parameters"] = {str(key): str(value) for key, value in parameters.items()}
        self._budget.take(found)
        properties = told.get("properties")
        if depth and isinstance(properties, dict) and found["type"] == "struct":
            parts = sorted(properties.items(), key=lambda part: self._index(part[1], root))
            found["fields"] = [
                self.field(each, root, depth - 1, field=name, default=self._default(each, root))
                for name, each in parts
            ]
        if depth and kind == "array" and told.get("items") is not None:
            found["items"] = self.field(told["items"], root, depth - 1)
        return found

    def _index(self, told: Any, root: Mapping[str, Any]) -> int:
        for each in (told, self._value(told, root).told):
            found = each.get("connect.index") if isinstance(each, dict) else None
            if isinstance(found, int):
                return found
        return 1 << 20

    def _default(self, told: Any, root: Mapping[str, Any]) -> Any:
        for each in (told, self._value(told, root).told):
            found = each.get("default") if isinstance(each, dict) else None
            if found is not None and not isinstance(found, dict | list):
                return found
        return None

    # ---- references

    def _value(self, told: Any, root: Mapping[str, Any]) -> _Place:
        """The schema without null in its union, after following its references."""
        place = self._places.get(id(told))
        if place is None:
            place = self._places[id(told)] = self._followed(told, root)
        return place

    def _followed(self, told: Any, root: Mapping[str, Any]) -> _Place:
        for _ in range(_MOST_STEPS):
            if not isinstance(told, dict):
                return _Place({}, root)
            branches = told.get("oneOf") or told.get("anyOf")
            if isinstance(branches, list):
                told = next((each for each in branches if each != {"type": "null"}), {})
                continue
            reference = told.get("$ref")
            if not isinstance(reference, str):
                return _Place(told, root)
            told, root = self._referred(reference, root)
        raise SchemaError(f"references form a circle, or a chain of more than {_MOST_STEPS}")

    def _referred(self, reference: str, root: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """The target of a reference, and the document that contains it."""
        name, _, path = reference.partition("#")
        if name and name != root.get("$id"):
            root = self._document(name)
        told: Any = root
        for part in path.split("/")[1:]:
            told = _part(told, part)
        if told is None or (path and not path.startswith("/")):
            raise SchemaError(f"it refers to {_shown(reference)}, which does not exist")
        return told, root

    def _document(self, name: str) -> Mapping[str, Any]:
        if name not in self._documents:
            text = self._texts.get(name)
            if text is None:
                raise SchemaError(f"it refers to {_shown(name)}, which names none of its references")
            self._documents[name] = _object_of(text)
        return self._documents[name]


def _object_of(text: str) -> Mapping[str, Any]:
    try:
        told: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError(f"no JSON: {error}") from None
    if not isinstance(told, dict):
        raise SchemaError("a JSON Schema must be an object")
    return told


def _part(told: Any, part: str) -> Any:
    """Follow one step of a JSON Pointer. None if no such part exists."""
    if isinstance(told, list):
        return told[int(part)] if part.isdecimal() and len(part) < 10 and int(part) < len(told) else None
    if not isinstance(told, dict):
        return None
    found = told.get(part)
    return found if found is not None else told.get(unquote(part).replace("~1", "/").replace("~0", "~"))


def _shown(name: str) -> str:
    return repr(name if len(name) <= 100 else name[:100] + "...")
