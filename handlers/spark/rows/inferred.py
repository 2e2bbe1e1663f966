"""Infers column types if a source does not send all of them: from the values, and from the earlier type.

The best type is not the narrowest, but one that lasts. Integers become bigint at once, decimals get room for
more digits. A column keeps its type as long as the values fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from types import NoneType
from typing import Any

import pyarrow as pa

from handlers.spark.rows.conversions import UNFIT, ColumnType, array_of, fitting
from handlers.spark.rows.spark_types import MOST_DIGITS

_STRING = pa.string()
_LABELS = pa.list_(pa.string())
_LONG_DIGITS = 20  # a bigint has 19, and Delta widens it to decimals with 20 before the point
_SCALES = (0, 2, 4, 6, 10, 14, 18, 24, 30)
_WHOLE_DIGITS = (18, 28, 38)
# For each kept type, the types of values that may fit it. `fitting` would take more (a text of digits as a
# number). But unless a type says that a text is a number, it stays a text.
_WELCOME: Mapping[pa.DataType, frozenset[type]] = {
    pa.bool_(): frozenset((bool,)),
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), frozenset((int, float, Decimal))),
    **dict.fromkeys((pa.float32(), pa.float64()), frozenset((int, float))),
    pa.binary(): frozenset((bytes, bytearray, memoryview)),
    pa.date32(): frozenset((date,)),
    pa.timestamp("us"): frozenset((datetime, date)),
    pa.timestamp("us", tz="UTC"): frozenset((datetime,)),
}
_DECIMAL_WELCOME = frozenset((int, float, Decimal))


def inferred(
    values: Sequence[Any], known: pa.DataType | None, told: ColumnType | None = None
) -> pa.DataType | None:
    """Return a type that holds all values, and all of `known`, the column's earlier type.

    `told`: the source's type, if it is open. Returns None if there is no value yet."""
    types = set(map(type, values))
    types.discard(NoneType)
    if not types or (known is not None and _holds(known, values, types)):
        return known
    own = _own_type(values, types) if told is None else _told_type(told, values, types)
    if known is None:
        return own
    both = wider(known, own)
    # A double would round a long whole number.
    return both if not pa.types.is_floating(both) or _holds(both, values, types) else _STRING


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that holds all values of both. A string, if no other type does."""
    if one == other:
        return one
    if {one, other} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    digits, others = _digits(one), _digits(other)
    if digits is not None and others is not None:
        if pa.types.is_integer(one) and pa.types.is_integer(other):
            return max(one, other, key=lambda each: each.bit_width)
        return _decimal(max(digits[0], others[0]), max(digits[1], others[1]), room=False)
    numbers = [each for each in (one, other) if pa.types.is_integer(each) or pa.types.is_floating(each)]
    return pa.float64() if len(numbers) == 2 else _STRING


def _holds(kept: pa.DataType, values: Sequence[Any], types: set[type]) -> bool:
    if kept == _STRING:
        return True
    if pa.types.is_list(kept):
        return _are_labels(values, types)
    if not types <= (_DECIMAL_WELCOME if pa.types.is_decimal(kept) else _WELCOME.get(kept, frozenset())):
        return False
    if pa.types.is_timestamp(kept) and _zones(values) != {kept.tz is not None}:
        return False
    try:
        array_of(values, fitting(kept))
    except UNFIT:
        return False
    return True


def _told_type(told: ColumnType, values: Sequence[Any], types: set[type]) -> pa.DataType:
    if told.arrow == _STRING:
        # decimal(65,30): in a stream that knows its columns, all values have the 30 digits.
        is_exact = all(
            isinstance(value, Decimal) and value.as_tuple().exponent == -30
            for value in values
            if value is not None
        )
        return _STRING if is_exact else _own_type(values, types)
    return told.arrow if _holds(told.arrow, values, types) else _own_type(values, types)


def _own_type(values: Sequence[Any], types: set[type]) -> pa.DataType:
    if types <= {int, float, Decimal}:
        return _number_type(values, types)
    if types <= {datetime, date}:
        return _time_type(values, types)
    if _are_labels(values, types):
        return _LABELS
    simple = {bool: pa.bool_(), bytes: pa.binary(), bytearray: pa.binary(), memoryview: pa.binary()}
    found = {simple.get(each, _STRING) for each in types}
    return found.pop() if len(found) == 1 else _STRING


def _number_type(values: Sequence[Any], types: set[type]) -> pa.DataType:
    if Decimal not in types:
        binary = pa.float64() if float in types else pa.int64()
        if _holds(binary, values, types):
            return binary
        if float in types:
            return _STRING
    numbers = [Decimal(repr(each) if type(each) is float else each) for each in values if each is not None]
    if not all(number.is_finite() for number in numbers):
        return _STRING
    whole = max(number.adjusted() + 1 for number in numbers)
    return _decimal(whole, max(-int(number.as_tuple().exponent) for number in numbers), room=True)


def _decimal(whole: int, scale: int, *, room: bool) -> pa.DataType:
    """Return a decimal with these digits before and after the point. `room`: more of them, if possible."""
    whole, scale = max(whole, 0), max(scale, 0)
    roomy_whole = next((digits for digits in _WHOLE_DIGITS if digits >= whole), whole)
    roomy_scale = next((digits for digits in _SCALES if digits >= scale), scale)
    if room and roomy_whole + roomy_scale <= MOST_DIGITS:
        return pa.decimal128(roomy_whole + roomy_scale, roomy_scale)
    return pa.decimal128(max(whole + scale, 1), scale) if whole + scale <= MOST_DIGITS else _STRING


def _time_type(values: Sequence[Any], types: set[type]) -> pa.DataType:
    if types == {date}:
        return pa.date32()
    zones = _zones(values)
    if zones == {False}:
        return pa.timestamp("us")
    return pa.timestamp("us", tz="UTC") if zones == {True} and types == {datetime} else _STRING


def _zones(values: Sequence[Any]) -> set[bool]:
    """Whether times have a zone."""
    return {value.tzinfo is not None for value in values if isinstance(value, datetime)} or {False}


def _are_labels(values: Sequence[Any], types: set[type]) -> bool:
    """A tuple is a set's labels. A list is an array of any source, which becomes JSON."""
    return types == {tuple} and all(isinstance(label, str) for value in values if value for label in value)


def _digits(arrow: pa.DataType) -> tuple[int, int] | None:
    """Digits of an exact number before and after the point."""
    if pa.types.is_decimal(arrow):
        return arrow.precision - arrow.scale, arrow.scale
    if pa.types.is_integer(arrow):
        return {8: 3, 16: 5, 32: 10}.get(arrow.bit_width, _LONG_DIGITS), 0
    return None
