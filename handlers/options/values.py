"""The kinds of values that options and the configuration share, each with its check and its JSON Schema."""

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
_SERVERS = "host:port, several divided by commas"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PATTERN = r"one pattern: a glob, or for several tables /shop\.(orders|items)/; or a rule for each"
_SHORT = ("max_wait", "initial_delay")
"""Keys whose durations are of less than a second as a rule."""


def not_allowed(allowed: str, nearest: str | None = None) -> PydanticCustomError:
    """The error of a value that is not what `allowed` says; `nearest` is what was probably meant.

    Neither text may hold the value itself: it may be a secret.
    """
    return PydanticCustomError("not_allowed", "allowed: {allowed}", {"allowed": allowed, "nearest": nearest})


def duration(default: str, description: str | None = None) -> Any:
    """A field of type Duration whose default is written, and shown in the schema, as a text."""
    return Field(
        default=parse_duration(default), json_schema_extra={"default": default}, description=description
    )


def size(default: str, description: str | None = None) -> Any:
    """A field of type PositiveSize whose default is written, and shown in the schema, as a text."""
    return Field(default=parse_size(default), json_schema_extra={"default": default}, description=description)


def _from_program(value: object, info: ValidationInfo) -> bool:
    """Programs may give plain seconds and bytes; in a file the unit must be written."""
    from_file = (info.context or {}).get("file", False)
    return not from_file and isinstance(value, int | float) and not isinstance(value, bool)


def _duration(value: object, info: ValidationInfo) -> float:
    if _from_program(value, info):
        return float(value)  # type: ignore[arg-type]  # just seen to be a number
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
        count = int(value)  # type: ignore[call-overload]  # just seen to be a number
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
    """What a number without a unit was probably meant to be: hundreds of milliseconds rather than minutes."""
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
    """`check` of the value, which has to be a text, as `allowed` says."""
    if not isinstance(value, str):
        raise not_allowed(allowed)
    return check(value)


def _servers(value: object) -> str:
    if not isinstance(value, str):
        raise not_allowed(_SERVERS)
    for server in value.split(","):
        # Kafka's client passes over what comes behind a port until the next comma.
        if re.search(r"[\s;]", server.strip(" ")):
            raise not_allowed(_SERVERS)
        # And over a server whose protocol it does not know, as if there were none.
        protocol, known, _ = server.strip(" ").partition("://")
        if known and protocol.upper() not in _PROTOCOLS:
            raise not_allowed(_SERVERS, re.sub(r"[A-Za-z0-9+.-]*://", "", value).rstrip("/"))
    return value


def pattern_of(value: str, matcher: Callable[[str], object]) -> str:
    """The pattern, of which `matcher` can make a test."""
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
