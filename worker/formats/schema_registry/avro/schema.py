"""Avro schemas: https://avro.apache.org/docs/1.12.0/specification/

A parsed schema has only the parts that reading needs. Each record is read with the schema that wrote it, so a
table's columns change with its records. The memory that values of a schema take limits one record."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from worker.formats.interface import shortened

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_MOST_DEPTH = 64
_MOST_TYPES = 20_000
"""Most types of one schema with its references. A table of 5,000 columns has about 10,000."""
_MOST_FIXED = 1 << 20  # bytes


class SchemaError(ValueError):
    """The registry's schema is invalid or unsupported."""


class AvroField(msgspec.Struct, gc=False, eq=False):
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
    """Parse a schema. `references`: the schemas that it refers to, each after its own references.

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

    def read(self, node: Any, namespace: str, depth: int) -> AvroSchema:
        self._types += 1
        if depth > _MOST_DEPTH or self._types > _MOST_TYPES:
            raise SchemaError(f"more than {_MOST_DEPTH} nested types, or {_MOST_TYPES:,} in all")
        if isinstance(node, str):
            return self._by_name(node, namespace)
        if isinstance(node, list) and node:
            branches = tuple(self.read(branch, namespace, depth + 1) for branch in node)
            return AvroSchema("union", branches=branches)
        if not isinstance(node, dict):
            raise SchemaError(f"a type must be a name, a list or an object, not {shortened(repr(node))}")
        return self._of_object(node, namespace, depth)

    def _of_object(self, node: Mapping[str, Any], namespace: str, depth: int) -> AvroSchema:
        kind = node.get("type")
        if isinstance(kind, dict | list):  # {"type": {"type": ...}}
            return self.read(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise SchemaError(f"a type without a name: {shortened(repr(node))}")
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_type(node, kind, namespace, depth)
        if kind in ("array", "map"):
            items = self.read(node.get("items" if kind == "array" else "values"), namespace, depth + 1)
            return _with_properties(AvroSchema(kind, items=items), node)
        found = self._by_name(kind, namespace)
        if kind in _PRIMITIVES:
            return _with_properties(AvroSchema(kind), node)
        return found

    def _by_name(self, name: str, namespace: str) -> AvroSchema:
        if name in _PRIMITIVES:
            return AvroSchema(name)
        found = self._named.get(_full(name, namespace)) or self._named.get(name)
        if found is None:
            raise SchemaError(f"it names the type {name[:100]!r}, which neither it nor its references define")
        return found

    def _named_type(self, node: Mapping[str, Any], kind: str, namespace: str, depth: int) -> AvroSchema:
        name = node.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"a type {kind} without a name")
        space = node.get("namespace")
        full = _full(name, space if isinstance(space, str) else namespace)
        made = self._named[full] = _with_properties(AvroSchema("record" if kind == "error" else kind), node)
        if kind == "enum":
            symbols = node.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                raise SchemaError(f"the enum {full} has no symbols")
            made.symbols = tuple(symbols)
        elif kind == "fixed":
            size = node.get("size")
            if not isinstance(size, int) or not 0 <= size <= _MOST_FIXED:
                raise SchemaError(f"the type {full} is fixed, but its size is invalid")
            made.size = size
        else:
            fields = node.get("fields")
            if not isinstance(fields, list):
                raise SchemaError(f"the record {full} has no fields")
            made.fields = tuple(self._field(field, full.rpartition(".")[0], depth) for field in fields)
            if len({field.name for field in made.fields}) < len(made.fields):
                raise SchemaError(f"the record {full} has two fields with the same name")
        return made

    def _field(self, node: Any, namespace: str, depth: int) -> AvroField:
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise SchemaError(f"a field without a name: {shortened(repr(node))}")
        return AvroField(node["name"], self.read(node.get("type"), namespace, depth + 1), node.get("default"))


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_properties(schema: AvroSchema, node: Mapping[str, Any]) -> AvroSchema:
    for field, key in (
        ("meaning", "connect.name"),
        ("connect_type", "connect.type"),
        ("logical", "logicalType"),
    ):
        value = node.get(key)
        if isinstance(value, str):
            setattr(schema, field, value)
    parameters = node.get("connect.parameters")
    if isinstance(parameters, dict):
        schema.parameters = {str(key): str(value) for key, value in parameters.items()}
    elif schema.logical == "decimal":
        schema.parameters = {
            "scale": str(node.get("scale", 0)),
            "connect.decimal.precision": str(node.get("precision", 0)),
        }
    schema.default = node.get("connect.default")
    return schema


VALUE = 100
"""Approximate bytes of any value with its JSON text, without the value's own bytes."""
_RECORD = 300
_MOST = 64 << 20
"""Most bytes that the values of one record may take."""


class _Budget(threading.local):
    """The budget of a thread's current record. Threads share readers, but not this."""

    left = 0


_budget = _Budget()


def open_budget(taken: int = 0) -> None:
    """Reset the budget before each record that uses it. `taken`: bytes that the record always takes."""
    _budget.left = _MOST - taken


def take(size: int) -> None:
    """Take `size` bytes from the budget. Raises ValueError if this thread's record exceeds it."""
    left = _budget.left = _budget.left - size
    if left < 0:
        raise ValueError(f"its values would take more than {_MOST >> 20} MiB")


class Weights:
    """The weights of one schema's types, each computed once. For one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[int, int | None] = {}

    def of(self, schema: AvroSchema) -> int:
        """Approximate bytes of the smallest value, including a record's field names in JSON. Excludes the
        content of arrays, maps and unions.

        Raises SchemaError for a record that contains itself as a field, or whose values are too large."""
        if schema.kind not in ("record", "enum"):
            return VALUE
        key = id(schema)
        if key not in self._known:
            self._known[key] = None
            labels = max(map(_text, schema.symbols), default=0)
            self._known[key] = self._record(schema) if schema.kind == "record" else VALUE + labels
        known = self._known[key]
        if known is None:
            raise SchemaError("a record has itself as a required field, so its values would be endless")
        return known

    def _record(self, schema: AvroSchema) -> int:
        weight = _RECORD
        for field in schema.fields:
            weight += _text(field.name) + self.of(field.type)
            if weight > _MOST:
                raise SchemaError(f"a record's values would take more than {_MOST >> 20} MiB, however small")
        return weight


def _text(text: str) -> int:
    return len(msgspec.json.encode(text))


# ---- the schema of Kafka Connect, which repeats each type wherever it is named

_MOST_FIELDS = 20_000
"""Most fields of a schema. An envelope contains a row of 5,000 columns twice."""
_MOST_OF_SCHEMA = 16 << 20


class FieldBudget:
    """The limit on fields and bytes of one schema."""

    def __init__(self) -> None:
        self._fields, self._bytes = _MOST_FIELDS, _MOST_OF_SCHEMA

    def take(self, field: Mapping[str, Any]) -> None:
        """Count a field without its nested fields. Raises SchemaError if a limit is exceeded."""
        self._fields -= 1
        self._bytes -= len(msgspec.json.encode(field))
        if self._fields < 0 or self._bytes < 0:
            raise SchemaError(
                f"more than {_MOST_FIELDS:,} fields, or {_MOST_OF_SCHEMA >> 20} MiB, with all that it names"
            )
