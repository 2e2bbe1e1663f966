"""PostgreSQL's column types and values, if source and target are both PostgreSQL, and intervals as text."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine, UserDefinedType

from handlers.sql.types.driver_values import UnfitValue
from handlers.values.native_types import NativeType

_EXTENSIONS = ("hstore", "citext", "ltree")
"""Types that only the extension of the same name provides."""
_TEXT = re.compile(r"([a-z0-9 ]+?)(?:\((\d+)(?:,(-?\d+))?\))?((?:\[\])*)")
_SIZES = re.compile(r"\((\d+)(?:,(-?\d+))?\)")
_FIELDS = re.compile(r"interval ([a-z ]+)")
_SHORT = {"name": 63, '"char"': 1}
_SRID = 4
_POINT = struct.Struct("<BIdd")
_UNITS = ("year", "month", "day", "hour", "minute", "second")
_ISO = re.compile(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?")
_POSTGRESQL = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:(-?\d+) days? ?)?(?:(-?\d+):(\d+):([\d.]+))?"
)
_SECONDS = {"hour": 3600, "minute": 60}


class _Named(UserDefinedType[Any]):
    """A type for which SQLAlchemy has no class."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


class ShortText(_Named):
    """A type of texts. PostgreSQL cuts longer ones."""

    def __init__(self, name: str, size: int) -> None:
        """`size` is in bytes."""
        super().__init__(name)
        self.size = size


_PLAIN: Mapping[str, Callable[[], TypeEngine[Any]]] = {
    "smallint": sa.SMALLINT,
    "integer": sa.INTEGER,
    "bigint": sa.BIGINT,
    "oid": sa.BIGINT,
    "real": sa.REAL,
    "double precision": sa.DOUBLE_PRECISION,
    "numeric": sa.NUMERIC,
    "boolean": sa.BOOLEAN,
    "text": sa.TEXT,
    "name": sa.TEXT,
    "char": sa.TEXT,
    "varchar": sa.TEXT,
    "bytea": postgresql.BYTEA,
    "date": sa.DATE,
    # Always six digits: with fewer PostgreSQL would round silently.
    "timestamp": lambda: postgresql.TIMESTAMP(timezone=False),
    "timestamptz": lambda: postgresql.TIMESTAMP(timezone=True),
    "time": lambda: postgresql.TIME(timezone=False),
    "timetz": lambda: postgresql.TIME(timezone=True),
    "interval": postgresql.INTERVAL,
    "uuid": lambda: postgresql.UUID(as_uuid=False),
    "json": postgresql.JSON,
    "jsonb": postgresql.JSONB,
    # Not money: Debezium's snapshot rounds it to amounts that money cannot store.
    "money": sa.NUMERIC,
    "inet": postgresql.INET,
    "cidr": postgresql.CIDR,
    "macaddr": postgresql.MACADDR,
    "macaddr8": postgresql.MACADDR8,
    "tsvector": postgresql.TSVECTOR,
    "hstore": postgresql.HSTORE,
    "citext": postgresql.CITEXT,
    "bit varying": lambda: postgresql.BIT(varying=True),
    **{
        name: lambda name=name: _Named(name)  # type: ignore[misc]
        for name in (
            *("xml", "ltree"),
            *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"),
        )
    },
}


def native_type(type_text: str) -> TypeEngine[Any] | None:
    """Return the type of the source's column, or None if its type text is not PostgreSQL's."""
    if not isinstance(type_text, NativeType):
        return None
    found = _TEXT.fullmatch(type_text.native)
    if found is None:
        return None
    name, size, scale, brackets = found.groups()
    item = _sized(name, int(size), int(scale or 0)) if size else None
    if item is None:
        made = _PLAIN.get(name)
        item = postgresql.BIT(1) if name == "bit" else None if made is None else made()
    # PostgreSQL's arrays have no fixed number of dimensions.
    return item if item is None or not brackets else postgresql.ARRAY(item)


def _sized(name: str, size: int, scale: int) -> TypeEngine[Any] | None:
    match name:
        case "bit":
            return postgresql.BIT(size)
        case "bit varying":
            return postgresql.BIT(size, varying=True)
        case "varchar" | "char":
            return sa.VARCHAR(size)
        case "numeric":
            return sa.NUMERIC(size, scale)
    return None


def extension_of(type_text: str) -> str | None:
    """Return the extension that provides the type, or None if it needs none."""
    name = type_text.native.partition("[")[0] if isinstance(type_text, NativeType) else None
    return name if name in _EXTENSIONS else None


# ---- values; each raises UnfitValue


def bit_text(value: Any, length: int | None, *, is_varying: bool) -> str:
    """Return the digits of a bit string from a number, or from bytes with the last bits first (the connector
    sends long ones so). Leading zeros are not sent; a fixed length restores them.

    >>> bit_text(5, 8, is_varying=False), bit_text(b"\\x05\\x01", None, is_varying=True)
    ('00000101', '100000101')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        number = int.from_bytes(bytes(value), "little")
    elif isinstance(value, int) and value >= 0:
        number = int(value)
    else:
        raise UnfitValue(f"{type(value).__name__} is not a bit string")
    digits: str = f"{number:b}" if number else ""
    return digits if is_varying else "0" * ((length or 1) - len(digits)) + digits


def hstore_text(value: Any) -> str:
    """Convert an object, or its JSON, to hstore's syntax. Return any other text unchanged.

    >>> hstore_text('{"a":"1","b":null}')
    '"a"=>"1","b"=>NULL'
    """
    read = value
    if isinstance(value, str):
        try:
            read = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    if not isinstance(read, dict):
        raise UnfitValue(f"{type(read).__name__} is not an hstore")
    return ",".join(f"{_quoted(key)}=>{'NULL' if one is None else _quoted(one)}" for key, one in read.items())


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def point_text(value: Any) -> Any:
    """Convert an SRID and a WKB to `(1.5,-2.0)`. Return any other value unchanged."""
    if not isinstance(value, bytes) or len(value) != _SRID + _POINT.size:
        return value
    order, kind, x, y = _POINT.unpack(value[_SRID:])
    return f"({x!r},{y!r})" if (order, kind) == (1, 1) else value


def other_text(value: Any) -> Any:
    """Decode bytes of an unknown type: they are its text (from `include.unknown.datatypes`)."""
    return value.decode() if isinstance(value, bytes) else value


def innermost_type(type_: TypeEngine[Any], text: str, *, is_array: bool) -> TypeEngine[Any]:
    """Return the type of the values of a domain or of an array's items. `text` is that type in PostgreSQL's
    syntax. SQLAlchemy omits the sizes of a domain's type and the zone after them."""
    own, is_domain = type_, False
    while isinstance(own, postgresql.DOMAIN | sa.ARRAY):
        is_domain = is_domain or isinstance(own, postgresql.DOMAIN)
        own = own.data_type if isinstance(own, postgresql.DOMAIN) else own.item_type
    if text in _SHORT:
        own = ShortText(text, _SHORT[text])
    elif text == "bpchar":
        own = sa.CHAR()
    elif is_domain:
        own = _sized_type(own, text)
    return postgresql.ARRAY(own) if is_array else own


def _sized_type(own: TypeEngine[Any], text: str) -> TypeEngine[Any]:
    sizes = _SIZES.search(text)
    if isinstance(own, postgresql.INTERVAL) and (fields := _FIELDS.match(text)):
        return postgresql.INTERVAL(fields=fields[1], precision=int(sizes[1]) if sizes else None)
    if sizes is None:
        return own
    size = int(sizes[1])
    if isinstance(own, sa.Numeric):
        return sa.NUMERIC(scale=int(sizes[2] or 0))
    if isinstance(own, postgresql.TIMESTAMP | postgresql.TIME):
        return type(own)(precision=size, timezone=text.endswith("with time zone"))
    given = {"precision": size} if isinstance(own, postgresql.INTERVAL) else {"length": size}
    return own.adapt(type(own), **given) if isinstance(own, sa.String | postgresql.INTERVAL) else own


def refuse_below(values: Sequence[Any], *, lowest: str, others: Callable[[Sequence[Any]], None]) -> None:
    """Call `others`, then raise UnfitValue for parts that an `interval` down to `lowest` would cut."""
    others(values)
    if lowest == "second":
        return
    for value in values:
        if isinstance(value, timedelta):
            step = timedelta(seconds=_SECONDS.get(lowest, 0))
            is_cut = bool(value % step if step else value)
        else:
            text = str(value or "")
            found = _ISO.fullmatch(text) or _POSTGRESQL.fullmatch(text)
            below = (None,) if found is None else found.groups()[_UNITS.index(lowest) + 1 :]
            is_cut = found is None or any((part or "").strip("-0.") for part in below)
        if is_cut:
            raise UnfitValue(f"{value} may have parts below the {lowest}, which the column would lose")


def interval_text(value: Any) -> Any:
    """Convert an interval in ISO 8601 to DuckDB's syntax. Return any other value unchanged.

    >>> interval_text("P1Y2M3DT0H0M-1.5S")
    '1 years 2 months 3 days 0 hours 0 minutes -1.5 seconds'
    """
    found = _ISO.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    parts = [f"{count} {unit}s" for count, unit in zip(found.groups(), _UNITS, strict=True) if count]
    return " ".join(parts) or "0 seconds"
