"""Values of any Avro schema as the plain values that Kafka Connect's JSON has for them.

A reader takes the bytes and a place in them, and gives the value and the place behind it. All raise one of
READ_ERRORS for bytes that are not of the schema.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from worker.formats.schema_registry.avro.schema import AvroSchema

__all__ = ["READ_ERRORS", "Reader", "length", "reader_of", "varint"]

Reader = Callable[[bytes, int], tuple[Any, int]]

READ_ERRORS = (ValueError, IndexError, struct.error, RecursionError, OverflowError)

_MOST_BITS = 63
_MOST_WEIGHT = 64 << 20
"""About so many bytes may the values of one array or map take: an item may be of no bytes at all."""
_VALUE, _RECORD = 100, 300
_float = struct.Struct("<f").unpack_from
_double = struct.Struct("<d").unpack_from


def varint(value: bytes, at: int) -> tuple[int, int]:
    """An int, a long, a branch or a count: zig-zag, seven bits a byte, lowest first."""
    byte = value[at]
    at += 1
    bits, shift = byte & 0x7F, 7
    while byte > 0x7F:
        if shift > _MOST_BITS:
            raise ValueError(f"a number of more than 64 bits at byte {at}")
        byte = value[at]
        at += 1
        bits |= (byte & 0x7F) << shift
        shift += 7
    return (bits >> 1) ^ -(bits & 1), at


def length(value: bytes, at: int) -> tuple[int, int]:
    """A number that is not negative, and for which the value has as many bytes left."""
    count, at = varint(value, at)
    if not 0 <= count <= len(value) - at:
        raise ValueError(f"a length of {count} at byte {at} of {len(value)}")
    return count, at


def _null(_value: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(value: bytes, at: int) -> tuple[bool, int]:
    if value[at] > 1:
        raise ValueError(f"no boolean at byte {at}: {value[at]}")
    return value[at] == 1, at + 1


def _read_float(value: bytes, at: int) -> tuple[float | str, int]:
    return _number(_float(value, at)[0]), at + 4


def _read_double(value: bytes, at: int) -> tuple[float | str, int]:
    return _number(_double(value, at)[0]), at + 8


def _number(value: float) -> float | str:
    """JSON has no other numbers than finite ones: Connect writes them as text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _bytes(value: bytes, at: int) -> tuple[bytes, int]:
    count, at = length(value, at)
    return value[at : at + count], at + count


def _string(value: bytes, at: int) -> tuple[str, int]:
    count, at = length(value, at)
    return value[at : at + count].decode(), at + count


_PRIMITIVES: dict[str, Reader] = {
    "null": _null,
    "boolean": _boolean,
    "int": varint,
    "long": varint,
    "float": _read_float,
    "double": _read_double,
    "bytes": _bytes,
    "string": _string,
}


def reader_of(schema: AvroSchema) -> Reader:
    """Reads whole values: records and maps as dicts, bytes as bytes, numbers that JSON has not as text."""
    return _reader(schema, {})


def _reader(schema: AvroSchema, known: dict[int, list[Reader]]) -> Reader:
    primitive = _PRIMITIVES.get(schema.kind)
    if primitive is not None:
        return primitive
    cell = known.get(id(schema))
    if cell is not None:
        return cell[0] if cell else partial(_inside, cell)
    cell = known[id(schema)] = []
    made = _made(schema, known)
    cell.append(made)
    return made


def _inside(made: list[Reader], value: bytes, at: int) -> tuple[Any, int]:
    """Of a record in itself: its reader is not made yet when it is named."""
    return made[0](value, at)


def _made(schema: AvroSchema, known: dict[int, list[Reader]]) -> Reader:
    match schema.kind:
        case "record":
            return _record([(field.name, _reader(field.type, known)) for field in schema.fields])
        case "union":
            return _union([_reader(branch, known) for branch in schema.branches])
        case "enum":
            return _enum(schema.symbols)
        case "fixed":
            return _fixed(schema.size)
    assert schema.items is not None
    items, weight = _reader(schema.items, known), _weight(schema.items)
    return _map(items, weight) if schema.kind == "map" else _array(items, weight)


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


def _blocks(value: bytes, at: int, weight: int) -> tuple[int, int]:
    """How many items the next block has; 0: that was the last one."""
    count, at = varint(value, at)
    if count < 0:
        count = -count
        _, at = length(value, at)  # the block's size in bytes
    if count * weight > _MOST_WEIGHT:
        raise ValueError(f"{count} items at byte {at}: they would take more than {_MOST_WEIGHT >> 20} MiB")
    return count, at


def _array(item: Reader, weight: int) -> Reader:
    def read(value: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, at = _blocks(value, at, weight)
        while count:
            for _ in range(count):
                one, at = item(value, at)
                items.append(one)
            count, at = _blocks(value, at, weight)
            if count and len(items) * weight > _MOST_WEIGHT:
                raise ValueError(f"an array of more than {_MOST_WEIGHT >> 20} MiB")
        return items, at

    return read


def _map(item: Reader, weight: int) -> Reader:
    def read(value: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        count, at = _blocks(value, at, weight)
        while count:
            for _ in range(count):
                key, at = _string(value, at)
                found[key], at = item(value, at)
            count, at = _blocks(value, at, weight)
        return found, at

    return read


def _weight(schema: AvroSchema) -> int:
    """About how many bytes the smallest value takes, with the names of a record's fields in its JSON."""
    if schema.kind != "record":
        return _VALUE
    return _RECORD + sum(_VALUE + len(field.name) for field in schema.fields)
