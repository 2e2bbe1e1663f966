"""Avro schemas: https://avro.apache.org/docs/1.12.0/specification/

Only the parts of a writer's schema that reading needs. Each record is read with the schema that wrote it, so
a table's columns change with its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_MOST_DEPTH = 64
_MOST_TYPES = 20_000
"""Most types of one schema with its references. A table of 5,000 columns has about 10,000."""
_MOST_FIXED = 1 << 20  # bytes


class SchemaError(ValueError):
    """The registry's schema is invalid or unsupported."""


class AvroField(msgspec.Struct, gc=False, eq=False):
    """One field of a record."""

    name: str
    type: AvroSchema
    default: Any = None


class AvroSchema(msgspec.Struct, eq=False):
    """One type. It is filled in once and then never changes. A record may contain itself."""

    kind: str
    """A primitive's name, or record, enum, fixed, array, map, union."""
    meaning: str | None = None
    """`connect.name`: the value's meaning, from a converter of Kafka Connect."""
    connect_type: str | None = None
    """`connect.type`: int8, int16."""
    parameters: Mapping[str, str] | None = None
    logical: str | None = None
    default: Any = None
    """`connect.default`."""
    fields: tuple[AvroField, ...] = ()
    items: AvroSchema | None = None
    """The type of an array's items or a map's values."""
    branches: tuple[AvroSchema, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    """Bytes of a fixed."""

    @property
    def value(self) -> AvroSchema:
        """The other type in a union of null and one type, else this type."""
        left = [branch for branch in self.branches if branch.kind != "null"]
        return left[0] if len(left) == 1 else self


def parse(text: str | bytes, references: Iterable[str | bytes] = ()) -> AvroSchema:
    """Parse a schema. `references`: the schemas that it refers to, each after those that it refers to itself.

    Raises SchemaError."""
    parser = _Parser()
    try:
        for reference in references:
            parser.read(msgspec.json.decode(reference), "", 0)
        return parser.read(msgspec.json.decode(text), "", 0)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaError(f"no JSON: {error}") from None


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroSchema] = {}
        self._types = 0

    def read(self, told: Any, namespace: str, depth: int) -> AvroSchema:
        self._types += 1
        if depth > _MOST_DEPTH or self._types > _MOST_TYPES:
            raise SchemaError(f"more than {_MOST_DEPTH} nested types, or {_MOST_TYPES:,} in all")
        if isinstance(told, str):
            return self._by_name(told, namespace)
        if isinstance(told, list) and told:
            branches = tuple(self.read(branch, namespace, depth + 1) for branch in told)
            return AvroSchema("union", branches=branches)
        if not isinstance(told, dict):
            raise SchemaError(f"a type must be a name, a list or an object, not {_shown(told)}")
        return self._of_object(told, namespace, depth)

    def _of_object(self, told: Mapping[str, Any], namespace: str, depth: int) -> AvroSchema:
        kind = told.get("type")
        if isinstance(kind, dict | list):  # {"type": {"type": ...}}
            return self.read(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise SchemaError(f"a type without a name: {_shown(told)}")
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_type(told, kind, namespace, depth)
        if kind in ("array", "map"):
            items = self.read(told.get("items" if kind == "array" else "values"), namespace, depth + 1)
            return _with_properties(AvroSchema(kind, items=items), told)
        found = self._by_name(kind, namespace)
        if kind in _PRIMITIVES:
            return _with_properties(AvroSchema(kind), told)
        return found

    def _by_name(self, name: str, namespace: str) -> AvroSchema:
        if name in _PRIMITIVES:
            return AvroSchema(name)
        found = self._named.get(_full(name, namespace)) or self._named.get(name)
        if found is None:
            raise SchemaError(f"it names the type {name[:100]!r}, which neither it nor its references define")
        return found

    def _named_type(self, told: Mapping[str, Any], kind: str, namespace: str, depth: int) -> AvroSchema:
        name = told.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"a type {kind} without a name")
        space = told.get("namespace")
        full = _full(name, space if isinstance(space, str) else namespace)
        made = self._named[full] = _with_properties(AvroSchema("record" if kind == "error" else kind), told)
        if kind == "enum":
            symbols = told.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                raise SchemaError(f"the enum {full} has no symbols")
            made.symbols = tuple(symbols)
        elif kind == "fixed":
            size = told.get("size")
            if not isinstance(size, int) or not 0 <= size <= _MOST_FIXED:
                raise SchemaError(f"the type {full} is fixed, but its size is invalid")
            made.size = size
        else:
            fields = told.get("fields")
            if not isinstance(fields, list):
                raise SchemaError(f"the record {full} has no fields")
            made.fields = tuple(self._field(field, full.rpartition(".")[0], depth) for field in fields)
            if len({field.name for field in made.fields}) < len(made.fields):
                raise SchemaError(f"the record {full} has two fields with the same name")
        return made

    def _field(self, told: Any, namespace: str, depth: int) -> AvroField:
        if not isinstance(told, dict) or not isinstance(told.get("name"), str):
            raise SchemaError(f"a field without a name: {_shown(told)}")
        return AvroField(told["name"], self.read(told.get("type"), namespace, depth + 1), told.get("default"))


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_properties(schema: AvroSchema, told: Mapping[str, Any]) -> AvroSchema:
    for field, key in (
        ("meaning", "connect.name"),
        ("connect_type", "connect.type"),
        ("logical", "logicalType"),
    ):
        value = told.get(key)
        if isinstance(value, str):
            setattr(schema, field, value)
    parameters = told.get("connect.parameters")
    if isinstance(parameters, dict):
        schema.parameters = {str(key): str(value) for key, value in parameters.items()}
    elif schema.logical == "decimal":
        schema.parameters = {
            "scale": str(told.get("scale", 0)),
            "connect.decimal.precision": str(told.get("precision", 0)),
        }
    schema.default = told.get("connect.default")
    return schema


def _shown(told: Any) -> str:
    text = repr(told)
    return text if len(text) <= 60 else text[:60] + "..."
