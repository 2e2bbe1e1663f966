"""PostgreSQL's columns: the types that only it has, and readers of their values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from handlers.values.native_types import NativeType
from worker.formats.debezium.column_values import any_decimal, bytes_from_text, decimal_from_text
from worker.formats.debezium.connect.schema import DECIMAL, SOURCE, Field
from worker.formats.debezium.connect.times import digits_of
from worker.formats.debezium.connect.values import (
    AS_IT_IS,
    Forms,
    Reader,
    array_of,
    connect_reader,
    types_of,
)
from worker.formats.debezium.postgres_types import postgres_type, spelled

_OWN = frozenset(
    (
        *("jsonb", "hstore", "citext", "ltree", "inet", "cidr", "macaddr", "macaddr8", "xml", "tsvector"),
        *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"),
        *("money", "interval", "time", "timetz", "bit", "bit varying"),
    )
)
_AS_TEXT = frozenset(("numeric", "money", "bytea"))
"""Types that the connector may send as text: `decimal.handling.mode`, `binary.handling.mode`."""
_MOST_SIZED = 1000
"""Most digits of a numeric with a size. For one without a size, the connector sends a larger length."""
_SIZED = frozenset(("bit", "bit varying", "char", "varchar"))
_LONGEST = 2**31 - 1
"""The length that the connector sends for a type without a length."""
_MONEY = 19  # digits
_DECIMALS = (DECIMAL, "io.debezium.data.VariableScaleDecimal")


def source_type(field: Field) -> str | None:
    """PostgreSQL's name for the type of a column that the connector sends as plain text.

    None if the schema does not have it (`datatype.propagate.source.type`), or if the column is text."""
    item = field.items if field.type == "array" and field.items is not None else field
    own = (field.parameter(f"{SOURCE}type") or "").lower()
    name = own.removeprefix("_")
    if item.type != "string" or item.name is not None or name not in _AS_TEXT:
        return None
    if item is not field:
        return f"{name}[]"
    length, scale = (field.parameter(f"{SOURCE}{part}") or "" for part in ("length", "scale"))
    if name != "numeric" or not length.isdecimal() or not 0 < int(length[:9]) <= _MOST_SIZED:
        return name
    places = int(scale[:9]) if scale.removeprefix("-").isdecimal() else 0
    return f"numeric({length},{places - 2048 if places > _MOST_SIZED else places})"


def with_native(text: str | None, field: Field | None, own: str | None) -> str | None:
    """A column's type text, with PostgreSQL's own name if that is more precise. `field`: its schema, if the
    record has one. `own`: its type as PostgreSQL names it, if known."""
    native = native_text(own) if own is not None else None if field is None else _of_field(field)
    if native is None:
        return text
    if text is None:
        text = "interval" if native == "interval" else "json"  # arrays, and hstore as a map
    return NativeType(text, native)


def native_text(own: str, length: int | None = None) -> str | None:
    """PostgreSQL's name of a type that only PostgreSQL has. None if `own` is not such a type.

    >>> native_text("character varying(9)[]"), native_text("JSONB"), native_text("numeric(10,2)")
    ('varchar(9)[]', 'jsonb', None)
    """
    words = " ".join(own.lower().split())
    if words.endswith("[]"):
        item = words.removesuffix("[]")
        return None if postgres_type(item) is None else f"{native_text(item, length) or _plain(item)}[]"
    if words.startswith("interval"):
        return "interval"
    found = spelled(words)
    if found is None or found[0] not in _OWN:
        return None
    return _sized(found[0], found[1] or length)


def _of_field(field: Field) -> str | None:
    own = field.parameter(f"{SOURCE}type")
    if own is not None:
        length = field.parameter(f"{SOURCE}length") or ""
        # An array's type is `_int4` in PostgreSQL's catalogue.
        name = f"{own[1:]}[]" if own.startswith("_") else own
        found = native_text(name, int(length) if length.isdecimal() and len(length) <= 10 else None)
        if found is not None:
            return found
    if field.type == "array" and field.items is not None:
        return f"{types_of(field.items).postgresql}[]"
    if field.type == "map":
        return "hstore"
    if field.name == "io.debezium.data.Bits" and field.parameter("length") == str(_LONGEST):
        return "bit varying"
    native = types_of(field).postgresql
    return native if native in ("interval", "time", "timetz") else None


def _plain(item: str) -> str:
    """The name of an array item's type that other databases have too."""
    found = spelled(item)
    if found is None:
        return "text"
    name, first, second = found
    if name == "numeric" and first is not None and second is not None:
        return f"numeric({first},{second})"
    return _sized(name, first) if name in _SIZED else name


def _sized(name: str, length: int | None) -> str:
    return f"{name}({length})" if name in _SIZED and length and length < _LONGEST else name


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
