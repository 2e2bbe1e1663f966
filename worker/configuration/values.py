"""The kinds of values a configuration holds, each with its check and its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from worker.configuration.matching import PatternError, table_matcher, topic_matcher
from worker.configuration.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

__all__ = [
    "FORMATS",
    "AccessToken",
    "Duration",
    "FilePath",
    "FormatChoice",
    "Initial",
    "PositiveDuration",
    "PositiveSize",
    "PropertyValue",
    "StartOffsets",
    "TablePattern",
    "TopicName",
    "TopicPattern",
    "duration",
    "not_allowed",
    "size",
]

FORMATS = ("canal", "debezium", "maxwell", "dts", "json")
StartOffsets = dict[str, dict[int, int]]
"""{topic: {partition: offset}}."""

_TOKEN_PATTERN = "^[!-~]{16,}$"
_DURATION = "a duration such as 250ms, 5s, 2m or 1h"
_SIZE = "a size such as 512KiB, 64MiB or 1GiB"
_SHORT = ("max_wait", "initial_delay")
"""Keys whose durations are of less than a second as a rule."""
_INITIAL = "earliest, latest, an ISO 8601 time, or a mapping {topic: {partition: offset}}"
_OFFSETS = "a mapping of partitions to offsets, such as {0: 1200, 1: 0}"


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


def _table_pattern(value: str) -> str:
    try:
        table_matcher(value)
    except PatternError as error:
        raise not_allowed(error.allowed, error.nearest) from None
    return value


def _topic_pattern(value: str) -> str:
    try:
        topic_matcher(value)
    except PatternError as error:
        raise not_allowed(error.allowed, error.nearest) from None
    return value


def _plain_topic(value: str) -> str:
    if value.startswith("^"):
        raise not_allowed("a topic name (letters, digits, '.', '_', '-')")
    return _topic_pattern(value)


def _format(value: object) -> str | dict[str, str]:
    if isinstance(value, str):
        return _format_name(value)
    if isinstance(value, Mapping) and value:
        return {_topic_pattern(str(topic)): _format_name(name) for topic, name in value.items()}
    raise not_allowed(f"{', '.join(FORMATS)}, or a mapping of topics to formats")


def _format_name(value: object) -> str:
    if value in FORMATS:
        return str(value)
    near = get_close_matches(str(value), FORMATS, n=1)
    raise not_allowed(", ".join(FORMATS), near[0] if near else None)


def _initial(value: object) -> str | datetime | StartOffsets:
    if isinstance(value, datetime):
        return _aware(value)
    if isinstance(value, Mapping) and value:
        return {_topic_name(topic): _offsets(offsets) for topic, offsets in value.items()}
    if isinstance(value, str):
        if value in ("earliest", "latest"):
            return value
        try:
            return _aware(datetime.fromisoformat(value))
        except ValueError:
            near = get_close_matches(value, ("earliest", "latest"), n=1)
            raise not_allowed(_INITIAL, near[0] if near else None) from None
    raise not_allowed(_INITIAL)


def _aware(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _topic_name(value: object) -> str:
    name = _topic_pattern(str(value))
    if name.startswith("^"):
        raise not_allowed(f"{_INITIAL}, with the topics' own names")
    return name


def _offsets(value: object) -> dict[int, int]:
    if not isinstance(value, Mapping) or not value:
        raise not_allowed(_OFFSETS)
    return {_count(partition): _count(offset) for partition, offset in value.items()}


def _count(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise not_allowed(_OFFSETS)


def _property(value: object) -> str | int | float | bool:
    if isinstance(value, str | int | float):
        return value
    raise not_allowed("text, a number, true or false")


def _token(value: str) -> str:
    if re.fullmatch(_TOKEN_PATTERN, value) is None:
        raise not_allowed("at least 16 characters of ASCII without spaces")
    return value


def _path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if isinstance(value, str) and value and "\0" not in value:
        return Path(value)
    raise not_allowed("the path of a folder")


_duration_schema = WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN})
_name_schema = {"enum": list(FORMATS), "type": "string"}

Duration = Annotated[float, BeforeValidator(_duration), _duration_schema]
"""Seconds, 0 or more."""
PositiveDuration = Annotated[float, BeforeValidator(_positive_duration), _duration_schema]
PositiveSize = Annotated[
    int, BeforeValidator(_positive_size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN})
]
"""Bytes, 1 or more."""
TablePattern = Annotated[str, PlainValidator(lambda value: _text(value, _table_pattern))]
TopicPattern = Annotated[str, PlainValidator(lambda value: _text(value, _topic_pattern))]
TopicName = Annotated[str, PlainValidator(lambda value: _text(value, _plain_topic))]
FormatChoice = Annotated[
    str | dict[str, str],
    PlainValidator(_format),
    WithJsonSchema(
        {
            "anyOf": [
                _name_schema,
                {"type": "object", "additionalProperties": _name_schema, "minProperties": 1},
            ]
        }
    ),
]
Initial = Annotated[
    Literal["earliest", "latest"] | datetime | StartOffsets,
    PlainValidator(_initial),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["earliest", "latest"]},
                {"type": "string", "pattern": "^[0-9]{4}-?[0-9]{2}-?[0-9]{2}"},
                {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "propertyNames": {"pattern": "^[0-9]+$"},
                        "additionalProperties": {"type": "integer", "minimum": 0},
                    },
                },
            ]
        }
    ),
]
PropertyValue = Annotated[
    str | int | float | bool,
    PlainValidator(_property),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
AccessToken = Annotated[
    str,
    PlainValidator(lambda value: _text(value, _token)),
    WithJsonSchema({"type": "string", "pattern": _TOKEN_PATTERN}),
]
FilePath = Annotated[Path, PlainValidator(_path), WithJsonSchema({"type": "string", "minLength": 1})]


def _text(value: object, check: Any) -> Any:
    if not isinstance(value, str):
        raise not_allowed("text")
    return check(value)
