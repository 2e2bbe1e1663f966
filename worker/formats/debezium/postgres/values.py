"""Readers of PostgreSQL columns, from their Connect schema, the configured type, or both."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from worker.formats.debezium.connect.meanings import DECIMAL
from worker.formats.debezium.connect.numbers import digits_of
from worker.formats.debezium.connect.schema import Field
from worker.formats.debezium.connect.text_forms import any_decimal, bytes_from_text, decimal_from_text
from worker.formats.debezium.connect.values import AS_IT_IS, Forms, Reader, array_of, connect_reader
from worker.formats.debezium.postgres.types import postgres_type

_MONEY = 19  # digits
_DECIMALS = (DECIMAL, "io.debezium.data.VariableScaleDecimal")


def postgres_reader(field: Field | None, type_text: str | None, forms: Forms) -> Reader:
    """The reader of a column. `field`: its schema, if the record has one. `type_text`: its type, if it is
    known."""
    known = None if type_text is None else postgres_type(type_text)
    if known is None:
        return AS_IT_IS if field is None else connect_reader(field, forms.beyond)
    if known.is_bit:
        return Reader(bool, int)
    return _reader(field, known.field, forms)


def _reader(field: Field | None, known: Field, forms: Forms) -> Reader:
    if known.items is not None:
        items = None if field is None else field.items
        return array_of(_reader(items, known.items, forms))
    if known.name in _DECIMALS:
        return _decimal(field, known, forms.decimals)
    if known == _BYTES and (field is None or field.type == "string"):
        return Reader(str, bytes_from_text(forms.binary))
    if field is None or (field.type == "string" and field.name is None):
        reader = connect_reader(known, forms.beyond)
        return reader._replace(other=_interval_text) if known.name == _INTERVAL else reader
    return connect_reader(field, forms.beyond)


def _decimal(field: Field | None, known: Field, decimals: str | None) -> Reader:
    kind = None if field is None else field.type
    if kind in ("bytes", "struct"):
        assert field is not None
        return connect_reader(field)
    if kind == "string" or (kind is None and decimals == "string"):
        return Reader(str, decimal_from_text)
    if kind in ("double", "float") or (kind is None and decimals == "double"):
        return Reader(Any, _from_json)
    precision, scale = known.parameter("connect.decimal.precision"), int(known.parameter("scale") or "0")
    if known.name != _DECIMALS[0] or scale:  # text has a point, base64 does not
        return connect_reader(known)._replace(other=_from_json)
    return any_decimal(decimals, int(precision or _MONEY), scale, decimal_from_text)


def _interval_text(value: Any) -> str:
    """An interval as text (`interval.handling.mode=string`), unchanged: `P1Y2M3DT4H5M6.5S`."""
    if isinstance(value, str) and value.startswith("P"):
        return value
    raise ValueError("no interval")


def _from_json(value: Any) -> Decimal:
    """Make a decimal from a number, or from digits as text."""
    return decimal_from_text(value if isinstance(value, str) else digits_of(value))


_INTERVAL = "io.debezium.time.MicroDuration"
_BYTES = Field("bytes")
