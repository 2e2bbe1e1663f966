"""Types of configuration values beyond those of options: patterns, formats, positions, paths."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from handlers.options.faults import nearest
from handlers.options.matching import topic_matcher
from handlers.options.shared import http_parts
from handlers.options.values import Shaped, not_allowed, pattern_of, text
from worker.formats import registry

FORMATS = registry.names()
MOST_PROCESSES = 256
StartOffsets = dict[str, dict[int, int]]
"""{topic: {partition: offset}}."""

_INITIAL = "earliest, latest, an ISO 8601 time, or a mapping {topic: {partition: offset}}"
_OFFSETS = "a mapping of partitions to offsets, such as {0: 1200, 1: 0}"


def _topic_pattern(value: str) -> str:
    return pattern_of(value, topic_matcher)


def _plain_topic(value: str, allowed: str = "a topic name (letters, digits, '.', '_', '-')") -> str:
    if value.startswith("^"):
        raise not_allowed(allowed)
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
    raise not_allowed(", ".join(FORMATS), nearest(str(value), FORMATS))


def _initial(value: object) -> str | datetime | StartOffsets:
    if isinstance(value, datetime):
        return _aware(value)
    if isinstance(value, Mapping) and value:
        allowed = f"{_INITIAL}, with the topics' own names"
        return {_plain_topic(str(topic), allowed): _offsets(offsets) for topic, offsets in value.items()}
    if isinstance(value, str):
        if value in ("earliest", "latest"):
            return value
        try:
            return _aware(datetime.fromisoformat(value))
        except ValueError:
            raise not_allowed(_INITIAL, nearest(value, ("earliest", "latest"))) from None
    raise not_allowed(_INITIAL)


def _aware(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


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


def _database_url(value: str) -> str:
    # Imported here because few configurations have a database URL, and importing SQLAlchemy is slow.
    from handlers.sql.target.engine import check_url  # noqa: PLC0415

    try:
        check_url(value)
    except ValueError as error:
        raise not_allowed(f"the URL of a database ({error})") from None
    return value


def _path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if isinstance(value, str) and value and "\0" not in value:
        return Path(value)
    raise not_allowed("the path of a folder")


def _http_url(value: str) -> str:
    if http_parts(value) is None or not value.isascii() or any(each.isspace() for each in value):
        raise not_allowed("a URL that begins with http:// or https://")
    return value


def _processes(value: object) -> object:
    if value == "auto":
        usable = cores()
        return min(usable, MOST_PROCESSES) if usable > 1 else 0
    if isinstance(value, str) and not value.isdigit():
        raise not_allowed(f"auto, or a whole number up to {MOST_PROCESSES}", nearest(value, ("auto",)))
    return value


def cores(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many processors this process may keep busy. The CPU limit of its container counts (cgroup v2
    or v1, below `root`)."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # "max" and -1: no limit
            quota, period = map(int, " ".join((root / name).read_text("ascii") for name in names).split())
            if quota > 0 < period:
                usable = min(usable, quota // period)
    return max(1, usable)


def _text_like(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


_name_schema = {"enum": list(FORMATS), "type": "string"}
_names_schema = {"type": "object", "additionalProperties": _name_schema, "minProperties": 1}
_offsets_schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": {"type": "integer", "minimum": 0},
}

TopicPattern = Annotated[str, PlainValidator(lambda value: text(value, _topic_pattern))]
TopicName = Annotated[str, PlainValidator(lambda value: text(value, _plain_topic))]
FormatChoice = Annotated[
    str | dict[str, str], PlainValidator(_format), WithJsonSchema({"anyOf": [_name_schema, _names_schema]})
]
Initial = Annotated[
    Literal["earliest", "latest"] | datetime | StartOffsets,
    PlainValidator(_initial),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["earliest", "latest"]},
                {"type": "string", "pattern": "^[0-9]{4}-?[0-9]{2}-?[0-9]{2}"},
                {"type": "object", "additionalProperties": _offsets_schema},
            ]
        }
    ),
]
Processes = Annotated[
    int,
    BeforeValidator(_processes),
    Field(ge=0, le=MOST_PROCESSES),
    WithJsonSchema(
        {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0, "maximum": MOST_PROCESSES}]}
    ),
]
AccessToken = Annotated[str, Shaped("^[!-~]{16,}$", "at least 16 ASCII characters without spaces")]
DatabaseUrl = Annotated[
    str, PlainValidator(lambda value: text(value, _database_url)), _text_like("^[a-z]+(\\+[a-z]+)?://")
]
FilePath = Annotated[Path, PlainValidator(_path), WithJsonSchema({"type": "string", "minLength": 1})]
HttpUrl = Annotated[str, PlainValidator(lambda value: text(value, _http_url)), _text_like("^https?://")]
HeaderValue = Annotated[str, Shaped("^[ -~]*$", "a header value (ASCII, no line breaks)")]
