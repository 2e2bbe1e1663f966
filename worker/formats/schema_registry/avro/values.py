"""Values of any Avro schema as the plain values that Kafka Connect's JSON has for them.

A reader takes the bytes and a place in them, and gives the value and the place behind it. All raise one of
READ_ERRORS for bytes that are not of the schema."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from handlers.change_json import json_float
from worker.formats.schema_registry.avro.schema import AvroSchema
from worker.formats.schema_registry.avro.weights import VALUE, Weights, open_budget, take

Reader = Callable[[bytes, int], tuple[Any, int]]

READ_ERRORS = (ValueError, IndexError, struct.error, RecursionError, OverflowError)

_float = struct.Struct("<f").unpack_from
_double = struct.Struct("<d").unpack_from


def _number_of(bits_at_most: int) -> Callable[[bytes, int], tuple[int, int]]:
    last = (bits_at_most - 1) // 7 * 7  # where the last byte that it may have begins

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
"""A long, a branch or a count: zig-zag, seven bits a byte, lowest first."""
int32 = _number_of(32)
"""An int."""


def length(value: bytes, at: int) -> tuple[int, int]:
    """A number that is not negative, and for which the value has as many bytes left."""
    count, at = varint(value, at)
    if not 0 <= count <= len(value) - at:
        raise ValueError(f"a length of {count} at byte {at} of {len(value)}")
    return count, at


def _boolean(value: bytes, at: int) -> tuple[bool, int]:
    if value[at] > 1:
        raise ValueError(f"no boolean at byte {at}: {value[at]}")
    return value[at] == 1, at + 1


def _read_float(value: bytes, at: int) -> tuple[float | str, int]:
    return json_float(_float(value, at)[0]), at + 4


def _read_double(value: bytes, at: int) -> tuple[float | str, int]:
    return json_float(_double(value, at)[0]), at + 8


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
    "float": _read_float,
    "double": _read_double,
    "bytes": _bytes,
    "string": read_string,
}


def reader_of(schema: AvroSchema) -> Reader:
    """Reads whole values: records and maps as dicts, bytes as bytes, numbers that JSON has not as text.

    Raises SchemaError for a schema of which no value could be read."""
    readers = Readers()
    read, weight = readers.of(schema), readers.weights.of(schema)
    if not readers.take:
        return read

    def with_budget(value: bytes, at: int) -> tuple[Any, int]:
        open_budget(weight)
        return read(value, at)

    return with_budget


class Readers:
    """Readers of the types of one schema, each made once. One thread at a time; threads share the readers."""

    def __init__(self) -> None:
        self.weights = Weights()
        self.take = False
        """Whether one of them takes from the record's budget, which is to be opened before."""
        self._known: dict[int, list[Reader]] = {}

    def of(self, schema: AvroSchema) -> Reader:
        """Raises SchemaError for a schema of which no value could be read."""
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

    def charged(self, schema: AvroSchema) -> Reader:
        """As `of`, for a value that counts as VALUE where it stands: what it weighs more is taken first."""
        read, weight = self.of(schema), self.weights.of(schema)
        if weight == VALUE:
            return read
        self.take = True
        return partial(_charged, read, weight - VALUE)

    def _made(self, schema: AvroSchema) -> Reader:
        match schema.kind:
            case "record":
                self.weights.of(schema)  # refuses one that has itself as a field
                return _record([(field.name, self.of(field.type)) for field in schema.fields])
            case "union":
                return _union([self.charged(branch) for branch in schema.branches])
            case "enum":
                return _enum(schema.symbols)
            case "fixed":
                return _fixed(schema.size)
        assert schema.items is not None
        self.take = True
        items, weight = self.of(schema.items), self.weights.of(schema.items)
        return _map(items, weight) if schema.kind == "map" else _array(items, weight)


def _inside(made: list[Reader], value: bytes, at: int) -> tuple[Any, int]:
    """Of a record in itself: its reader is not made yet when it is named."""
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
    """How many items the next block has, of this weight each at least; 0: that was the last one."""
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
