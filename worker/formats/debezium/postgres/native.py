"""Types that only PostgreSQL has, from a column's schema or the configuration.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types"""

from __future__ import annotations

from handlers.native_types import NativeType
from worker.formats.debezium.connect.meanings import SOURCE, types_of
from worker.formats.debezium.connect.schema import Field
from worker.formats.debezium.postgres.types import postgres_type, spelled

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
