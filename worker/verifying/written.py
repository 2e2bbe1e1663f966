"""A value of the source's driver as Spark is to keep it: what a worker would write, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
)

from worker.verifying.forms import Form
from worker.verifying.written_texts import bit_bytes, texts

_BITS: Mapping[type[DataType], int] = {
    BooleanType: 1,
    ByteType: 7,
    ShortType: 15,
    IntegerType: 31,
    LongType: 63,
}
_FAULTS = (ValueError, TypeError, ArithmeticError, KeyError, RecursionError)


class Unwritable(RuntimeError):
    """Nothing that the column can keep means this value."""


def written(value: Any, source: sa.types.TypeEngine[Any], form: Form, type_: DataType) -> Any:
    """What a column of this type is given, so that both sides have one form. Raises Unwritable."""
    if value is None:
        return None
    try:
        wanted = form.source(value)
        if wanted is None:
            return None
        for found in _candidates(value, wanted, source, type_):
            if has_place(found, type_) and _equal(form.spark(found), wanted):
                return found
    except _FAULTS:
        raise Unwritable(f"{_shown(value)} is no value of its type") from None
    raise Unwritable(f"{_shown(value)} has no place in a column of type {type_.simpleString()}")


def _candidates(value: Any, wanted: Any, source: sa.types.TypeEngine[Any], type_: DataType) -> Iterator[Any]:
    match type_:
        case BooleanType():
            yield bool(wanted)
        case DecimalType():
            yield Decimal(wanted)
        case FloatType() | DoubleType():
            yield float(wanted)
        case TimestampType():
            yield wanted.replace(tzinfo=UTC)
        case BinaryType() if isinstance(wanted, int):
            yield bytearray(bit_bytes(str(value)))
        case BinaryType():
            # Of a type that the driver does not know, the source tells what it prints: none of its bytes.
            if not (
                isinstance(source, sa.types.NullType) and isinstance(value, str) and wanted == value.encode()
            ):
                yield bytearray(wanted)
        case ArrayType():
            yield _items(value, wanted)
        case StringType():
            yield from texts(value, wanted, source)
        case _:
            yield wanted


def _items(value: Any, wanted: Any) -> list[str | None]:
    """Labels, or the items of an array: nothing but texts has a place there."""
    if isinstance(wanted, str) and wanted.startswith("["):
        found = json.loads(wanted)
    else:
        found = value.split(",") if isinstance(value, str) else sorted(value)
        found = [label for label in found if label]
    if not all(item is None or isinstance(item, str) for item in found):
        raise TypeError("not of texts")
    return list(found)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 (what is no number)


def has_place(value: Any, type_: DataType) -> bool:
    """Whether a column of this type keeps a value, which is in one form, as it is."""
    match type_:
        case DecimalType():
            return isinstance(value, Decimal) and _has_room(value, type_)
        case BooleanType() | ByteType() | ShortType() | IntegerType() | LongType():
            bits = _BITS[type(type_)]
            return isinstance(value, int) and -(1 << bits) <= value < 1 << bits
        case FloatType() | DoubleType():
            return isinstance(value, float)
        case DateType():
            return not isinstance(value, datetime)
    return True


def _has_room(value: Decimal, type_: DecimalType) -> bool:
    """Without regard to how many digits a context has."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False
    text = "".join(map(str, digits)).lstrip("0")
    whole = text.rstrip("0")
    scale = -(exponent + len(text) - len(whole))
    return not whole or (scale <= type_.scale and len(whole) - scale <= type_.precision - type_.scale)


def _shown(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
