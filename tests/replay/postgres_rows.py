"""The captured workload on PostgreSQL: its truth, and its values as docs/formats.md says that they are."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from captured import postgres_truth
from replica import Workload

from handlers import BeyondCalendar

__all__ = ["IN_CALENDAR", "POSTGRESQL"]

_DAY = timedelta(days=1)
_MONTH = 30.4375
"""Days: Debezium's."""
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d:\d\d:\d\d(?:\.\d+)?))?(\+00)?")
_CLOCK = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_INTERVAL = re.compile(r"([+-]?\d+) (year|mon|day)s?")
_ZONE = re.compile(r"([+-])(\d\d)(?::(\d\d))?$")
_TOKEN = re.compile(r'\{|\}|,|"((?:[^"\\]|\\.)*)"|[^{},"]+')
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)')
_DOMAINS = {"price": "numeric(10,2)", "posint": "integer", "email": "text"}


def from_source(value: Any, type_text: str) -> Any:
    """A value of the truth: the text of PostgreSQL's output function."""
    type_text = _DOMAINS.get(type_text, type_text)
    if value is None:
        return None
    if type_text.endswith("[]"):
        return _items(value, type_text.removesuffix("[]"))
    read = _TEXTS.get(re.sub(r"\(.*?\)| day to second", "", type_text))
    return from_target(value, type_text) if read is None else read(value, type_text)


def from_target(value: Any, type_text: str) -> Any:
    """A value as a target keeps it. What cannot be read by its type stays as it is, and so differs."""
    type_text = _DOMAINS.get(type_text, type_text)
    if value is None:
        return None
    try:
        if type_text.endswith("[]"):
            items = json.loads(value) if isinstance(value, str) else list(value)
            return [None if one is None else _item(one, type_text.removesuffix("[]")) for one in items]
        name = re.sub(r"\(.*?\)| day to second", "", type_text)
        native = _TEXTS.get(name)
        if native is not None and isinstance(value, str) and _is_native(value, name, type_text):
            return native(value, type_text)
        read = _READERS.get(_name(type_text))
        return value if read is None else read(value)
    except (ValueError, ArithmeticError, TypeError, AttributeError):
        return value


def _is_native(value: str, name: str, type_text: str) -> bool:
    """Whether PostgreSQL itself prints the value so, and not a target that keeps it as something else."""
    if name == "hstore":
        return not value.startswith("{")
    if name == "bit":  # 64 of them are digits of a number in SQLite
        return f"({len(value)})" in type_text and set(value) <= {"0", "1"}
    return name != "time with time zone" or _ZONE.search(value) is not None


def _name(type_text: str) -> str:
    name = re.sub(r"\(.*?\)| day to second", "", type_text)
    if type_text == "numeric":
        return "any numeric"
    if name == "bit varying":
        return _bits_name(type_text)
    return name


def _item(value: Any, type_text: str) -> Any:
    """Of an array, as JSON has it."""
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"])
    return from_target(value, type_text)


def _moment(value: Any, zone: Any) -> Any:
    if isinstance(value, datetime):
        # What drivers give is in UTC; astimezone fails at the calendar's end.
        assert not value.utcoffset()
        return value.replace(tzinfo=zone)
    if value in ("infinity", "-infinity") or value.endswith(" BC") or not re.match(r"\d{4}-", value):
        return BeyondCalendar(value)
    moment = datetime.fromisoformat(value)
    return moment.replace(tzinfo=zone)


def _date(value: Any) -> Any:
    if isinstance(value, date):
        return value
    moment = _moment(value, None)
    return moment.date() if isinstance(moment, datetime) else moment


def _clock(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    found = _CLOCK.fullmatch(value)
    if found is None:
        raise ValueError(value)
    sign, hours, minutes, seconds, fraction = found.groups()
    micros = int((fraction or "").ljust(6, "0"))
    length = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=micros)
    return -length if sign else length


def _zoned_time(value: str) -> timedelta:
    """In UTC."""
    found = _ZONE.search(value)
    assert found is not None
    offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
    length = _clock(value[: found.start()]) - (-offset if found[1] == "-" else offset)
    return length % _DAY


def _interval(value: str) -> timedelta:
    days: float = 0.0
    for count, unit in _INTERVAL.findall(value):
        days += int(count) * {"year": 12 * _MONTH, "mon": _MONTH, "day": 1}[unit]
    clock = re.search(r"[+-]?\d+:\d\d:\d\d(?:\.\d+)?$", value)
    return timedelta(days=days) + (_clock(clock[0].removeprefix("+")) if clock else timedelta())


def _hstore(value: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for pair in _PAIR.finditer(value):
        found[_unescaped(pair[1])] = None if pair[0].endswith("=>NULL") else _unescaped(pair[2])
    return found


def _point(value: str) -> bytes:
    x, y = map(float, value.strip("()").split(","))
    return bytes(4) + b"\1\1\0\0\0" + struct.pack("<dd", x, y)


def _bits_name(type_text: str) -> str:
    size = re.search(r"\((\d+)\)", type_text)
    return "bit" if size and int(size[1]) <= 64 else "bytea"


def _bits(value: str, type_text: str) -> int | bytes:
    """Up to 64 a number; others as bytes, the last first."""
    number = int(value or "0", 2)
    if _name(type_text) == "bit":
        return number
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _items(text: str, type_text: str) -> list[Any]:
    """Of an array's text, also of one with more dimensions."""
    stack: list[list[Any]] = [[]]
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token == "{":
            stack.append([])
        elif token == "}":
            done = stack.pop()
            stack[-1].append(done)
        elif token != ",":
            item = None if token == "NULL" else _unescaped(found[1]) if token[0] == '"' else token
            stack[-1].append(from_source(item, type_text))
    items: list[Any] = stack[0][0]
    return items


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _json(value: str) -> str:
    return msgspec.json.format(value, indent=-1)


def _single(value: Any) -> float:
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]  # type: ignore[no-any-return]


def _whole_digits(value: Any) -> Decimal:
    """Zeros at its end are not sent."""
    number = Decimal(value)
    if not number.is_finite():
        return number
    return Decimal(format(number, "f").rstrip("0").rstrip(".") if "." in format(number, "f") else number)


def _boolean(value: Any) -> bool:
    if value in (True, "t", "true"):
        return True
    if value in (False, "f", "false"):
        return False
    raise ValueError(value)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "oid"), int),
    "bit": int,
    "numeric": Decimal,
    "any numeric": _whole_digits,
    "money": Decimal,
    "real": _single,
    "double precision": float,
    "boolean": _boolean,
    "bytea": bytes,
    "date": _date,
    "timestamp without time zone": lambda value: _moment(value, None),
    "timestamp with time zone": lambda value: _moment(value, UTC),
    "time without time zone": _clock,
    "time with time zone": _clock,
    "interval": _clock,
    "json": _json,
    "jsonb": _json,
    "hstore": json.loads,
    "uuid": str,
}

_TEXTS: Mapping[str, Callable[[str, str], Any]] = {
    "money": lambda value, _: Decimal(re.sub(r"[$,]", "", value)),
    "bytea": lambda value, _: bytes.fromhex(value.removeprefix("\\x")),
    "bit": _bits,
    "bit varying": _bits,
    "interval": lambda value, _: _interval(value),
    "hstore": lambda value, _: _hstore(value),
    "point": lambda value, _: _point(value),
    "time with time zone": lambda value, _: _zoned_time(value),
}


def _in_calendar(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def none_beyond(value: Any, type_text: str) -> Any:
        found = read(value, type_text)
        return None if isinstance(found, BeyondCalendar) else found

    return none_beyond


_SCHEMAS = ("public", "crm", "Sales-EU v2")
POSTGRESQL = Workload(_SCHEMAS, postgres_truth, from_source, from_target)
IN_CALENDAR = Workload(_SCHEMAS, postgres_truth, _in_calendar(from_source), _in_calendar(from_target))
"""With `debezium.null_beyond_calendar` for all tables."""
