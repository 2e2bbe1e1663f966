"""How much memory values of an Avro schema take, and how much those of one record may.

A value may be of no bytes at all, and an array says how many there are: what a record's bytes become has no
bound but this one."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from worker.formats.schema_registry.avro.schema import AvroSchema, SchemaError

VALUE = 100
"""About how many bytes any value takes, with its text in JSON; those of its own bytes come on top."""
_RECORD = 300
_MOST = 64 << 20
"""Bytes that the values of one record may take."""


class _Budget(threading.local):
    """Readers are shared by threads, and each thread reads one record at a time."""

    left = 0


_budget = _Budget()


def open_budget(taken: int = 0) -> None:
    """Before each record whose values take from it. `taken`: bytes, of what it has in any case."""
    _budget.left = _MOST - taken


def take(size: int) -> None:
    """`size`: bytes. Raises ValueError where this thread's record has no more left."""
    left = _budget.left = _budget.left - size
    if left < 0:
        raise ValueError(f"its values would take more than {_MOST >> 20} MiB")


class Weights:
    """The weights of the types of one schema, each found once. One thread at a time."""

    def __init__(self) -> None:
        self._known: dict[int, int | None] = {}

    def of(self, schema: AvroSchema) -> int:
        """About how many bytes the smallest value takes, with the names of a record's fields in its JSON; not
        what stands in arrays, maps and unions.

        Raises SchemaError for a record of which no value could be read."""
        if schema.kind not in ("record", "enum"):
            return VALUE
        key = id(schema)
        if key not in self._known:
            self._known[key] = None
            self._known[key] = self._record(schema) if schema.kind == "record" else _enum(schema)
        known = self._known[key]
        if known is None:
            raise SchemaError("a record has itself as a field, and no value of it would end")
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


# ---- the schema that Kafka Connect would have: types that are named again and again multiply

_MOST_FIELDS = 20_000
"""A row of 5,000 columns stands in an envelope twice."""
_MOST_OF_SCHEMA = 16 << 20


class FieldBudget:
    """Of one schema."""

    def __init__(self) -> None:
        self._fields, self._bytes = _MOST_FIELDS, _MOST_OF_SCHEMA

    def take(self, told: Mapping[str, Any]) -> None:
        """`told`: a field without those in it. Raises SchemaError where it is one too many."""
        self._fields -= 1
        self._bytes -= len(msgspec.json.encode(told))
        if self._fields < 0 or self._bytes < 0:
            raise SchemaError(
                f"more than {_MOST_FIELDS:,} fields, or {_MOST_OF_SCHEMA >> 20} MiB, with all that it names"
            )
