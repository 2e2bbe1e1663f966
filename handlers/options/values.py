"""Types of values shared by options and the configuration, each with its check and its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function

from handlers.options.matching import PatternError, table_matcher

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}

# No \d: in Python it matches every script's digits, in JSON Schema (ECMA 262) only 0-9.
DURATION_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h)$"
SIZE_PATTERN = r"^[0-9]{1,15}(B|KiB|MiB|GiB)$"

_LETTERS_AT_END = re.compile(r"[A-Za-z]+$")
_DURATION = "a duration such as 250ms, 5s, 2m or 1h"
_SIZE = "a size such as 512KiB, 64MiB or 1GiB"
_SERVERS = "host:port, several separated by commas"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PATTERN = r"one pattern: a glob, or for several tables /shop\.(orders|items)/; or a rule for each"
_SHORT = ("max_wait", "initial_delay")
"""Keys whose durations are usually shorter than a second."""


def parse_duration(text: str) -> float:
    """Convert a duration to seconds.

    >>> parse_duration("250ms"), parse_duration("1.5m")
    (0.25, 90.0)

    Raises ValueError if the text is not a duration."""
    if not _fits(DURATION_PATTERN, text):
        raise ValueError(f"no duration: {text!r}")
    number, unit = _split(text)
    return float(Decimal(number) * _SECONDS[unit])


def parse_size(text: str) -> int:
    """Convert a size to bytes.

    >>> parse_size("64MiB")
    67108864

    Raises ValueError if the text is not a size."""
    if not _fits(SIZE_PATTERN, text):
        raise ValueError(f"no size: {text!r}")
    number, unit = _split(text)
    return int(number) * _BYTES[unit]


def format_duration(seconds: float) -> str:
    """Return the shortest text for `seconds` (0 or more), exact to the microsecond.

    >>> format_duration(0.1), format_duration(90), format_duration(7200)
    ('100ms', '90s', '2h')
    """
    exact = Decimal(str(seconds))
    if exact and exact < 1:
        return f"{_plain(exact * 1000)}ms"
    unit = next(unit for unit in ("h", "m", "s") if exact % _SECONDS[unit] == 0 or unit == "s")
    return f"{_plain(exact / _SECONDS[unit])}{unit}" if exact else "0s"


def format_size(size: int) -> str:
    """Return the shortest text for `size` bytes.

    >>> format_size(268435456), format_size(1000)
    ('256MiB', '1000B')
    """
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if size % _BYTES[unit] == 0) if size else "B"
    return f"{size // _BYTES[unit]}{unit}"


def _fits(pattern: str, text: str) -> bool:
    # `$` alone would also match before a line break at the end.
    return re.fullmatch(pattern.strip("^$"), text) is not None


def _split(text: str) -> tuple[str, str]:
    unit = _LETTERS_AT_END.search(text)
    assert unit is not None  # both patterns end in letters
    return text[: unit.start()], unit[0]


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def not_allowed(allowed: str, nearest: str | None = None) -> PydanticCustomError:
    """Return the error for a value that is not `allowed`. `nearest` is what was probably meant.

    Neither text may contain the value itself, because it may be a secret."""
    return PydanticCustomError("not_allowed", "allowed: {allowed}", {"allowed": allowed, "nearest": nearest})


def duration(default: str) -> Any:
    """Return a field of type Duration. Its default is given as text, and appears so in the schema."""
    return Field(default=parse_duration(default), json_schema_extra={"default": default})


def size(default: str) -> Any:
    """Return a field of type PositiveSize. Its default is given as text, and appears so in the schema."""
    return Field(default=parse_size(default), json_schema_extra={"default": default})


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


def _servers(value: str) -> str:
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
Servers = Annotated[str, Field(min_length=1), BeforeValidator(lambda value: text(value, _servers, _SERVERS))]
TablePattern = Annotated[
    str, PlainValidator(lambda value: text(value, lambda of: pattern_of(of, table_matcher), _PATTERN))
]


@dataclass(frozen=True, slots=True)
class Shaped:
    """Annotation of a text: its pattern, the pattern in words, and a guess at what was meant."""

    pattern: str
    allowed: str
    nearest: Callable[[str], str | None] = lambda _: None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, text: str) -> str:
        if not self._fits(text):
            near = self.nearest(text)
            raise not_allowed(self.allowed, near if near is not None and self._fits(near) else None)
        return text

    def _fits(self, text: str) -> bool:
        # `$` alone would also match before a line break at the end.
        return re.search(self.pattern, text) is not None and not text.endswith("\n")
