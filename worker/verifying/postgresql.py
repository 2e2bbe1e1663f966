"""Convert PostgreSQL's values to the form in which Debezium's records contain them.

PostgreSQL's own types are read through their output functions (`output`). Drivers convert some to objects
that lose information: `192.168.0.1/24` of an inet, `24:00:00` of a time, infinity."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

Type = sa.types.TypeEngine[Any]

# Types whose values psycopg returns unchanged.
_NATIVE = (sa.Integer, sa.Numeric, sa.Boolean, sa.String, sa.Uuid, sa.types._Binary)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 24 * 60 * 60 * 1_000_000
_DAYS_OF_MONTH = 365.25 / 12
"""As the connector counts them."""
_FIELD = re.compile(r"([+-]?\d+) (year|mon|day)s?")
_CLOCK = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ISO = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)
_ZONE = re.compile(r"(.*?)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_POINT = re.compile(r"\(([^,()]+),([^,()]+)\)")
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)|([{}])', re.DOTALL)
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PARTITIONS = sa.text(
    "SELECT n.nspname, c.relname, pn.nspname, p.relname FROM pg_class c "
    "CROSS JOIN LATERAL pg_partition_ancestors(c.oid) AS above "
    "JOIN pg_namespace n ON n.oid = c.relnamespace "
    "JOIN pg_class p ON p.oid = above.relid JOIN pg_namespace pn ON pn.oid = p.relnamespace "
    "WHERE c.relispartition AND p.oid <> c.oid"
)


def base_type(type_: Type) -> Type:
    """Return the type that a domain is based on; any other type unchanged."""
    while isinstance(type_, postgresql.DOMAIN):
        type_ = type_.data_type
    return type_


def output(column: sa.ColumnClause[Any]) -> sa.ColumnElement[Any]:
    """Select a value as its type's output function writes it. (A cast to text adds `/32` to an inet.)"""
    return sa.case((column.is_(None), None), else_=sa.func.format("%s", column, type_=sa.Text()))


def shown(column: sa.ColumnClause[Any], type_: Type) -> sa.ColumnElement[Any]:
    """Select a column of this type."""
    if isinstance(type_, postgresql.MONEY):
        return sa.cast(column, sa.Numeric)  # its text depends on the server's locale
    return column if isinstance(type_, _NATIVE) else output(column)


def partitions(connection: sa.Connection) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return (schema, partition) -> the (schema, table) of each partitioned table that shows its rows."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for schema, name, above_schema, above in connection.execute(_PARTITIONS):
        found.setdefault((schema, name), []).append((above_schema, above))
    return found


# ---- readers of values; each raises ValueError or TypeError for a value that is not of its type


def truth(value: Any) -> int:
    return {"t": 1, "f": 0}[value] if value in ("t", "f") else int(value)


def bits(value: Any) -> int:
    """Read a bit string's digits, or the bytes of a long one, which the connector sends last byte first.
    Leading zeros do not count."""
    if isinstance(value, str):
        return int(value or "0", 2)
    return int.from_bytes(value, "little") if isinstance(value, bytes | bytearray) else int(value)


def interval(value: Any) -> int:
    """Convert to microseconds. A month has 30.4375 days, as in the connector."""
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    found = _ISO.fullmatch(value)
    if found is not None and len(value) > 1:
        years, months, days, hours, minutes = (int(part or 0) for part in found.groups()[:5])
        clock = (hours * 60 + minutes) * 60 * 1_000_000 + round(float(found[6] or 0) * 1_000_000)
        return _microseconds(years * 12 + months, days, clock)
    amounts = {"year": 0, "mon": 0, "day": 0}
    rest = value
    for amount, unit in _FIELD.findall(value):
        amounts[unit] = int(amount)
        rest = rest.replace(f"{amount} {unit}s", "", 1).replace(f"{amount} {unit}", "", 1)
    rest = rest.strip()
    if not rest and value.strip():
        return _microseconds(amounts["year"] * 12 + amounts["mon"], amounts["day"], 0)
    return _microseconds(amounts["year"] * 12 + amounts["mon"], amounts["day"], clock_time(rest))


def zoned_time(value: Any) -> int:
    """Convert to microseconds since midnight in UTC."""
    if isinstance(value, timedelta):
        return value // _MICROSECOND % _DAY
    found = _ZONE.fullmatch(value)
    if found is None:
        return clock_time(value) % _DAY
    east = ((int(found[3]) * 60 + int(found[4] or 0)) * 60 + int(found[5] or 0)) * 1_000_000
    return (clock_time(found[1]) - (east if found[2] == "+" else -east)) % _DAY


def point(value: Any) -> bytes:
    """Convert `(1,2)` to the form in targets: an SRID of 0, then the WKB."""
    import struct  # noqa: PLC0415 - points are rare

    if not isinstance(value, str):
        return bytes(value)
    found = _POINT.fullmatch(value)
    return (
        value.encode() if found is None else struct.pack("<IBIdd", 0, 1, 1, float(found[1]), float(found[2]))
    )


def hstore(value: Any) -> dict[str, str | None]:
    """Read `"a"=>"1", "b"=>NULL`."""
    pairs = list(_PAIR.finditer(value))
    if ", ".join(found[0] for found in pairs) != value:
        raise ValueError("no hstore")
    return {_plain(found[1]): None if found[2] is None else _plain(found[2]) for found in pairs}


def array_items(value: str) -> list[Any]:
    """Read `{a,"b c",NULL,{x}}` as texts, None and lists."""
    tokens = _ITEM.finditer(value[value.index("{") :])  # bounds other than 1 precede it
    first = next(tokens)
    if first[3] != "{":
        raise ValueError("no array")
    return _items(tokens)


def _items(tokens: Iterator[re.Match[str]]) -> list[Any]:
    found: list[Any] = []
    for token in tokens:
        quoted, plain, brace = token.groups()
        if brace == "}":
            return found
        if brace == "{":
            found.append(_items(tokens))
        else:
            found.append(_plain(quoted) if quoted is not None else None if plain == "NULL" else plain)
    raise ValueError("no array")


def _plain(escaped: str) -> str:
    return _ESCAPED.sub(r"\1", escaped)


def clock_time(text: str) -> int:
    """Convert hours, minutes and seconds to microseconds."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError("no time")
    sign, hours, minutes, seconds, fraction = found.groups()
    amount = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000
    amount += int((fraction or "").ljust(6, "0"))
    return -amount if sign == "-" else amount


def _microseconds(months: int, days: int, clock: int) -> int:
    return int((months * _DAYS_OF_MONTH + days) * _DAY) + clock
