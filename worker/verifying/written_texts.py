"""Texts of the source's values as a worker writes them into a column of texts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from handlers.mysql.values import single
from handlers.spark.rows.conversions import text, time_text
from worker.verifying.postgresql import array_items, hstore, truth


def texts(value: Any, wanted: Any, source: sa.types.TypeEngine[Any]) -> Iterator[str]:
    """Those that may be it, the likeliest first; `wanted`: the value's form. Raises ValueError, TypeError,
    KeyError or ArithmeticError for what a worker would have other words for than these."""
    match source:
        case postgresql.ARRAY() if isinstance(value, str):
            yield text(_each(source.item_type, array_items(value)))
            return
        case postgresql.HSTORE() if isinstance(value, str):
            yield text(hstore(value))
            return
        case postgresql.INTERVAL() if isinstance(wanted, int):
            yield text(timedelta(microseconds=wanted))
        case sa.Time(timezone=True) if isinstance(wanted, int):
            yield text((datetime.min + timedelta(microseconds=wanted)).time())
    if isinstance(value, timedelta):
        yield time_text(value, getattr(source, "fsp", None) or 0)
    if isinstance(value, bytes | bytearray | memoryview):
        yield base64.b64encode(value).decode("ascii")
        yield bytes(value).decode("utf-8", "replace")
    yield text(value)
    yield str(value)
    if isinstance(wanted, str):
        yield wanted


def bit_bytes(digits: str) -> bytes:
    """Of PostgreSQL's bit strings that are longer than a number, as Debezium sends them."""
    return int(digits or "0", 2).to_bytes((len(digits) + 7) // 8, "little")


def _each(item: sa.types.TypeEngine[Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_each(item, one) for one in value]
    read = next(read for kind, read in _ITEMS.items() if isinstance(item, kind))
    return None if value is None else read(value)


def _moment(value: str) -> datetime | None:
    if value in ("infinity", "-infinity") or value.endswith(" BC"):
        return None  # Python has no such time, and so no worker
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is None else found.astimezone(UTC)


def _decimal(value: str) -> Decimal | str:
    if value in ("NaN", "Infinity", "-Infinity"):
        return value
    return Decimal(value.rstrip("0").rstrip(".") if "." in value else value)


def _refused(value: str) -> Any:
    raise TypeError(value)


# The first that fits: a Float is a Numeric, money and an interval are none of these.
_ITEMS: Mapping[type[Any] | tuple[type[Any], ...], Callable[[str], Any]] = {
    (postgresql.HSTORE, postgresql.INTERVAL, postgresql.MONEY, postgresql.BIT, sa.Time): _refused,
    sa.Boolean: lambda value: bool(truth(value)),
    sa.Integer: int,
    sa.REAL: lambda value: single(float(value)),
    sa.Float: float,
    sa.Numeric: _decimal,
    sa.DateTime: _moment,
    sa.types._Binary: lambda value: bytes.fromhex(value[2:]),
    object: str,
}
