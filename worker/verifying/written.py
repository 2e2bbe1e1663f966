"""Convert a value of the source's driver to the value that a worker would write to Spark, or refuse it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from pyspark.sql import types as sp
from sqlalchemy.dialects import postgresql

from handlers.mysql.values import single
from handlers.spark.rows.conversions import text
from handlers.values.change_json import duration_text
from worker.verifying.forms import Form
from worker.verifying.postgresql import array_items, hstore, truth

_BITS: Mapping[type[sp.DataType], int] = {
    sp.BooleanType: 1,
    sp.ByteType: 7,
    sp.ShortType: 15,
    sp.IntegerType: 31,
    sp.LongType: 63,
}
_FAULTS = (ValueError, TypeError, ArithmeticError, KeyError, RecursionError)


class Unwritable(RuntimeError):
    """No value of the column represents this one."""


def written(value: Any, source: sa.types.TypeEngine[Any], form: Form, type_: sp.DataType) -> Any:
    """Return the value for a column of this type, equal in the common form. Raises Unwritable."""
    if value is None:
        return None
    try:
        wanted = form.source(value)
        if wanted is None:
            return None
        for found in _candidates(value, wanted, source, type_):
            kept = form.spark(found) if has_place(found, type_) else None
            if kept == wanted or (kept != kept and wanted != wanted):  # noqa: PLR0124 (NaN)
                return found
    except _FAULTS:
        raise Unwritable(f"{_shown(value)} is not a value of its type") from None
    raise Unwritable(f"{_shown(value)} does not fit into a column of type {type_.simpleString()}")


def _candidates(
    value: Any, wanted: Any, source: sa.types.TypeEngine[Any], type_: sp.DataType
) -> Iterator[Any]:
    match type_:
        case sp.BooleanType():
            yield bool(wanted)
        case sp.DecimalType():
            yield Decimal(wanted)
        case sp.FloatType() | sp.DoubleType():
            yield float(wanted)
        case sp.TimestampType():
            yield wanted.replace(tzinfo=UTC)
        case sp.BinaryType() if isinstance(wanted, int):
            # A bit string of PostgreSQL that is too long for a number, as Debezium sends it.
            digits = str(value)
            yield bytearray(int(digits or "0", 2).to_bytes((len(digits) + 7) // 8, "little"))
        case sp.BinaryType():
            # For a type that the driver does not know, the source returns printed text, not its bytes.
            if not (
                isinstance(source, sa.types.NullType) and isinstance(value, str) and wanted == value.encode()
            ):
                yield bytearray(wanted)
        case sp.ArrayType():
            yield _items(value, wanted)
        case sp.StringType():
            yield from _texts(value, wanted, source)
        case _:
            yield wanted


def _items(value: Any, wanted: Any) -> list[str | None]:
    """Return labels or the items of an array. Only texts are supported."""
    if isinstance(wanted, str) and wanted.startswith("["):
        found = json.loads(wanted)
    else:
        found = value.split(",") if isinstance(value, str) else sorted(value)
        found = [label for label in found if label]
    if not all(item is None or isinstance(item, str) for item in found):
        raise TypeError("not of texts")
    return list(found)


def has_place(value: Any, type_: sp.DataType) -> bool:
    """Whether a column of this type keeps a value in the common form unchanged."""
    match type_:
        case sp.DecimalType():
            return isinstance(value, Decimal) and _has_room(value, type_)
        case sp.BooleanType() | sp.ByteType() | sp.ShortType() | sp.IntegerType() | sp.LongType():
            bits = _BITS[type(type_)]
            return isinstance(value, int) and -(1 << bits) <= value < 1 << bits
        case sp.FloatType() | sp.DoubleType():
            return isinstance(value, float)
        case sp.DateType():
            return not isinstance(value, datetime)
    return True


def _has_room(value: Decimal, type_: sp.DecimalType) -> bool:
    """Check without the limit of a context's digits."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False
    shown = "".join(map(str, digits)).lstrip("0")
    whole = shown.rstrip("0")
    scale = -(exponent + len(shown) - len(whole))
    return not whole or (scale <= type_.scale and len(whole) - scale <= type_.precision - type_.scale)


def _shown(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


def _texts(value: Any, wanted: Any, source: sa.types.TypeEngine[Any]) -> Iterator[str]:
    """Yield candidate texts, likeliest first; `wanted`: the value's form. Raises ValueError, TypeError,
    KeyError or ArithmeticError if a worker would write another text."""
    match source:
        case postgresql.ARRAY() if isinstance(value, str):
            yield text(_read_items(source.item_type, array_items(value)))
            return
        case postgresql.HSTORE() if isinstance(value, str):
            yield text(hstore(value))
            return
        case postgresql.INTERVAL() if isinstance(wanted, int):
            yield text(timedelta(microseconds=wanted))
        case sa.Time(timezone=True) if isinstance(wanted, int):
            yield text((datetime.min + timedelta(microseconds=wanted)).time())
    if isinstance(value, timedelta):
        yield duration_text(value, getattr(source, "fsp", None) or 0)
    if isinstance(value, bytes | bytearray | memoryview):
        yield base64.b64encode(value).decode("ascii")
        yield bytes(value).decode("utf-8", "replace")
    yield text(value)
    yield str(value)
    if isinstance(wanted, str):
        yield wanted


def _read_items(item: sa.types.TypeEngine[Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_read_items(item, one) for one in value]
    read = next(read for kind, read in _ITEMS.items() if isinstance(item, kind))
    return None if value is None else read(value)


def _time_of(value: str) -> datetime | None:
    if value in ("infinity", "-infinity") or value.endswith(" BC"):
        return None  # Python does not have this time, so a worker writes None
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is None else found.astimezone(UTC)


def _decimal(value: str) -> Decimal | str:
    if value in ("NaN", "Infinity", "-Infinity"):
        return value
    return Decimal(value.rstrip("0").rstrip(".") if "." in value else value)


def _refused(value: str) -> Any:
    raise TypeError(value)


# The first match wins: a Float is a Numeric. Money and intervals are neither.
_ITEMS: Mapping[type[Any] | tuple[type[Any], ...], Callable[[str], Any]] = {
    (postgresql.HSTORE, postgresql.INTERVAL, postgresql.MONEY, postgresql.BIT, sa.Time): _refused,
    sa.Boolean: lambda value: bool(truth(value)),
    sa.Integer: int,
    sa.REAL: lambda value: single(float(value)),
    sa.Float: float,
    sa.Numeric: _decimal,
    sa.DateTime: _time_of,
    sa.types._Binary: lambda value: bytes.fromhex(value[2:]),
    object: str,
}
