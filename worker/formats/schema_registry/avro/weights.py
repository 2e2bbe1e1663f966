"""Memory that values of an Avro schema take, and the limit for one record.

A value may have no bytes, and an array only gives its number of items. So this limit is the only bound on the
memory of a record's values."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from worker.formats.schema_registry.avro.schema import AvroSchema, SchemaError

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
            self._known[key] = self._record(schema) if schema.kind == "record" else _enum(schema)
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


def _enum(schema: AvroSchema) -> int:
    return VALUE + max(map(_text, schema.symbols), default=0)


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
