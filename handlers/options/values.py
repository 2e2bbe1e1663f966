"""Types of values shared by options and the configuration, each with its check and its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from handlers.options.matching import PatternError, table_matcher
from handlers.options.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

_DURATION = "a duration such as 250ms, 5s, 2m or 1h"
_SIZE = "a size such as 512KiB, 64MiB or 1GiB"
_SERVERS = "host:port, several separated by commas"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PATTERN = r"one pattern: a glob, or for several tables /shop\.(orders|items)/; or a rule for each"
_SHORT = ("max_wait", "initial_delay")
"""Keys whose durations are usually shorter than a second."""


def not_allowed(allowed: str, nearest: str | None = None) -> PydanticCustomError:
    """Return the error for a value that is not `allowed`. `nearest` is what was probably meant.

    Neither text may contain the value itself, because it may be a secret.
    """
    return PydanticCustomError("not_allowed", "allowed: {allowed}", {"allowed": allowed, "nearest": nearest})


def duration(default: str, description: str | None = None) -> Any:
    """Return a field of type Duration. Its default is given as text, and appears so in the schema."""
    return Field(
        default=parse_duration(default), json_schema_extra={"default": default}, description=description
    )


def size(default: str, description: str | None = None) -> Any:
    """Return a field of type PositiveSize. Its default is given as text, and appears so in the schema."""
    return Field(default=parse_size(default), json_schema_extra={"default": default}, description=description)


def _from_program(value: object, info: ValidationInfo) -> bool:
    """Whether a program passed plain seconds or bytes. In a file, the unit is required."""
    from_file = (info.context or {}).get("file", False)
    return not from_file and isinstance(value, int | float) and not isinstance(value, bool)


def _duration(value: object, info: ValidationInfo) -> float:
    if _from_program(value, info):
        return float(value)  # type: ignore[arg-type]  # checked above
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError:
            pass
    raise not_allowed(_DURATION, _with_unit(value, info.field_name))


def _positive_duration(value: object, info: ValidationInfo) -> float:
    seconds = _duration(value, info)
    if seconds <= 0:
        raise not_allowed(f"{_DURATION}, more than 0")
    return seconds


def _positive_size(value: object, info: ValidationInfo) -> int:
    count = 0
    if _from_program(value, info):
        count = int(value)  # type: ignore[call-overload]  # checked above
    elif isinstance(value, str):
        try:
            count = parse_size(value)
        except ValueError:
            raise not_allowed(_SIZE, _size_spelling(value)) from None
    if count < 1:
        raise not_allowed(f"{_SIZE}, at least 1B" if value in (0, "0B", "0KiB", "0MiB", "0GiB") else _SIZE)
    return count


def _with_unit(value: object, key: str | None) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return format_duration(_seconds(value, key))
    if isinstance(value, str):
        spelling = value.replace(" ", "")
        for long, short in (("millis", "ms"), ("sec", "s"), ("min", "m"), ("hour", "h")):
            number, found, rest = spelling.lower().partition(long)
            if found and rest.isalpha() | (not rest):
                spelling = number + short
                break
        if spelling.isascii() and spelling.isdigit() and len(spelling) < 10:
            return format_duration(_seconds(int(spelling), key))
        try:
            return format_duration(parse_duration(spelling))
        except ValueError:
            return None
    return None


def _seconds(number: int, key: str | None) -> float:
    """Guess the seconds meant by a number without a unit: large numbers are probably milliseconds."""
    in_milliseconds = number >= (100 if key in _SHORT else 1000)
    return number / 1000 if in_milliseconds else float(number)


def _size_spelling(value: str) -> str | None:
    spelling = value.replace(" ", "").lower().removesuffix("ib").removesuffix("b")
    units = {"k": "KiB", "m": "MiB", "g": "GiB"}
    if spelling[-1:] not in units or not spelling[:-1].isdigit():
        return None
    return format_size(parse_size(f"{spelling[:-1]}{units[spelling[-1]]}"))


def _property(value: object) -> str | int | float | bool:
    if isinstance(value, str | int | float):
        return value
    raise not_allowed("text, a number, true or false")


_duration_schema = WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN})


def text(value: object, check: Any, allowed: str = "text") -> Any:
    """Return `check(value)`. If the value is not a text, raise the error with `allowed`."""
    if not isinstance(value, str):
        raise not_allowed(allowed)
    return check(value)


def _servers(value: object) -> str:
    if not isinstance(value, str):
        raise not_allowed(_SERVERS)
    for server in value.split(","):
        # Kafka's client ignores anything between a port and the next comma.
        if re.search(r"[\s;]", server.strip(" ")):
            raise not_allowed(_SERVERS)
        # It also ignores a server with a protocol that it does not know.
        protocol, known, _ = server.strip(" ").partition("://")
        if known and protocol.upper() not in _PROTOCOLS:
            raise not_allowed(_SERVERS, re.sub(r"[A-Za-z0-9+.-]*://", "", value).rstrip("/"))
    return value


def pattern_of(value: str, matcher: Callable[[str], object]) -> str:
    """Return the pattern if `matcher` accepts it. Raises the error of `not_allowed`."""
    try:
        matcher(value)
    except PatternError as error:
        raise not_allowed(error.allowed, error.nearest) from None
    return value


Duration = Annotated[float, BeforeValidator(_duration), _duration_schema]
"""Seconds, 0 or more."""
PositiveDuration = Annotated[float, BeforeValidator(_positive_duration), _duration_schema]
PositiveSize = Annotated[
    int, BeforeValidator(_positive_size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN})
]
"""Bytes, 1 or more."""
PropertyValue = Annotated[
    str | int | float | bool,
    PlainValidator(_property),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
Servers = Annotated[str, Field(min_length=1), BeforeValidator(_servers)]
TablePattern = Annotated[
    str, PlainValidator(lambda value: text(value, lambda of: pattern_of(of, table_matcher), _PATTERN))
]
