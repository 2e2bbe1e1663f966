"""Readers of values of any Avro schema, as the plain values of Kafka Connect's JSON.

A reader takes the bytes and a position, and returns the value and the position after it. All readers raise
one of READ_ERRORS for bytes that do not fit the schema."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from handlers.values.change_json import json_float
from worker.formats.schema_registry.avro.schema import VALUE, AvroSchema, Weights, open_budget, take

Reader = Callable[[bytes, int], tuple[Any, int]]

READ_ERRORS = (ValueError, IndexError, struct.error, RecursionError, OverflowError)

_float = struct.Struct("<f").unpack_from
_double = struct.Struct("<d").unpack_from


def _number_of(bits_at_most: int) -> Callable[[bytes, int], tuple[int, int]]:
    last = (bits_at_most - 1) // 7 * 7  # shift of the last possible byte

    def read(value: bytes, at: int) -> tuple[int, int]:
        byte = value[at]
        at += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at
        bits, shift = byte & 0x7F, 7
        while byte > 0x7F:
            if shift > last:
                raise ValueError(f"a number of more than {bits_at_most} bits at byte {at}")
            byte = value[at]
            at += 1
            bits |= (byte & 0x7F) << shift
            shift += 7
        if shift > last and bits >> bits_at_most:
            raise ValueError(f"a number of more than {bits_at_most} bits before byte {at}")
        return (bits >> 1) ^ -(bits & 1), at

    return read


varint = _number_of(64)
"""Read a long, a branch or a count: zig-zag, seven bits in each byte, lowest bits first."""
int32 = _number_of(32)
"""Read an int."""


def length(value: bytes, at: int) -> tuple[int, int]:
    """Read a length. Raises ValueError if it is negative, or more than the bytes left."""
    count, at = varint(value, at)
    if not 0 <= count <= len(value) - at:
        raise ValueError(f"a length of {count} at byte {at} of {len(value)}")
    return count, at


def _boolean(value: bytes, at: int) -> tuple[bool, int]:
    if value[at] > 1:
        raise ValueError(f"not a boolean at byte {at}: {value[at]}")
    return value[at] == 1, at + 1


def _bytes(value: bytes, at: int) -> tuple[bytes, int]:
    count = value[at]
    end = at + 1 + (count >> 1)
    if not count & 0x81 and end <= len(value):  # one byte, and not negative
        return value[at + 1 : end], end
    count, at = length(value, at)
    return value[at : at + count], at + count


def read_string(value: bytes, at: int) -> tuple[str, int]:
    count = value[at]
    end = at + 1 + (count >> 1)
    if not count & 0x81 and end <= len(value):
        return value[at + 1 : end].decode(), end
    count, at = length(value, at)
    return value[at : at + count].decode(), at + count


_PRIMITIVES: dict[str, Reader] = {
    "null": lambda _value, at: (None, at),
    "boolean": _boolean,
    "int": int32,
    "long": varint,
    "float": lambda value, at: (json_float(_float(value, at)[0]), at + 4),
    "double": lambda value, at: (json_float(_double(value, at)[0]), at + 8),
    "bytes": _bytes,
    "string": read_string,
}


def reader_of(schema: AvroSchema) -> Reader:
    """Make a reader of whole values. Records and maps become dicts, and numbers that JSON lacks become text.

    Raises SchemaError for a schema whose values cannot be read."""
    readers = Readers()
    read, weight = readers.of(schema), readers.weights.of(schema)
    if not readers.take:
        return read

    def with_budget(value: bytes, at: int) -> tuple[Any, int]:
        open_budget(weight)
        return read(value, at)

    return with_budget


class Readers:
    """The readers of one schema's types. Threads share the readers, but one thread at a time makes them."""

    def __init__(self) -> None:
        self.weights = Weights()
        self.take = False
        """Whether a reader takes from the record's budget, so that `open_budget` must be called first."""
        self._known: dict[int, list[Reader]] = {}

    def of(self, schema: AvroSchema) -> Reader:
        """The reader of a type. Raises SchemaError for a type whose values cannot be read."""
        primitive = _PRIMITIVES.get(schema.kind)
        if primitive is not None:
            return primitive
        cell = self._known.get(id(schema))
        if cell is not None:
            return cell[0] if cell else partial(_inside, cell)
        cell = self._known[id(schema)] = []
        made = self._made(schema)
        cell.append(made)
        return made

    def take_from_budget(self) -> None:
        self.take = True

    def charged(self, schema: AvroSchema) -> Reader:
        """As `of`, but the reader first takes the value's weight beyond VALUE. The container takes VALUE."""
        read, weight = self.of(schema), self.weights.of(schema)
        if weight == VALUE:
            return read
        self.take_from_budget()
        return partial(_charged, read, weight - VALUE)

    def _made(self, schema: AvroSchema) -> Reader:
        match schema.kind:
            case "record":
                self.weights.of(schema)  # refuses a record with itself as a field
                return _record([(field.name, self.of(field.type)) for field in schema.fields])
            case "union":
                return _union([self.charged(branch) for branch in schema.branches])
            case "enum":
                return _enum(schema.symbols)
            case "fixed":
                return _fixed(schema.size)
        assert schema.items is not None
        self.take_from_budget()
        items, weight = self.of(schema.items), self.weights.of(schema.items)
        return _map(items, weight) if schema.kind == "map" else _array(items, weight)


def _inside(made: list[Reader], value: bytes, at: int) -> tuple[Any, int]:
    """Read a record that contains itself. Its reader was not complete when the inner one was made."""
    return made[0](value, at)


def _charged(read: Reader, size: int, value: bytes, at: int) -> tuple[Any, int]:
    take(size)
    return read(value, at)


def _record(fields: list[tuple[str, Reader]]) -> Reader:
    def read(value: bytes, at: int) -> tuple[dict[str, Any], int]:
        row = {}
        for name, field in fields:
            row[name], at = field(value, at)
        return row, at

    return read


def _union(branches: list[Reader]) -> Reader:
    def read(value: bytes, at: int) -> tuple[Any, int]:
        place, at = varint(value, at)
        if not 0 <= place < len(branches):
            raise ValueError(f"branch {place} of a union of {len(branches)} at byte {at}")
        return branches[place](value, at)

    return read


def _enum(symbols: tuple[str, ...]) -> Reader:
    def read(value: bytes, at: int) -> tuple[str, int]:
        place, at = varint(value, at)
        if not 0 <= place < len(symbols):
            raise ValueError(f"symbol {place} of an enum of {len(symbols)} at byte {at}")
        return symbols[place], at

    return read


def _fixed(size: int) -> Reader:
    def read(value: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(value):
            raise ValueError(f"{size} bytes at byte {at} of {len(value)}")
        return value[at : at + size], at + size

    return read


def read_block(value: bytes, at: int, weight: int) -> tuple[int, int]:
    """The number of items in the next block, each of at least this weight. 0: no more blocks."""
    count, at = varint(value, at)
    if count < 0:
        count = -count
        _, at = length(value, at)  # the block's size in bytes
    if count:
        take(count * weight)
    return count, at


def _array(item: Reader, weight: int) -> Reader:
    def read(value: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, at = read_block(value, at, weight)
        while count:
            for _ in range(count):
                one, at = item(value, at)
                items.append(one)
            count, at = read_block(value, at, weight)
        return items, at

    return read


def _map(item: Reader, weight: int) -> Reader:
    def read(value: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        count, at = read_block(value, at, weight)
        while count:
            for _ in range(count):
                key, at = read_string(value, at)
                found[key], at = item(value, at)
            count, at = read_block(value, at, weight)
        return found, at

    return read
