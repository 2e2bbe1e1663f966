"""Sample records from a file of JSON lines, as `binlane check --sample` reads them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from confluent_kafka import Message

from worker.formats.interface import Record
from worker.formats.json_rows import DECODE_ERRORS

# `kcat -J` prints `payload` and `ts`.
_VALUE_KEYS = ("value", "payload")
_RECORD_KEYS = frozenset(
    (
        *("broker", "headers", "key", "offset", "partition", "payload"),
        *("timestamp", "timestamp_ms", "topic", "ts", "tstype", "value"),
    )
)

_made: Callable[..., Record] = cast(Any, Message)


class SampleError(ValueError):
    """A line is not a sample record. The message names the line and says what is allowed."""


def read_samples(path: Path, topic: str) -> Iterator[Record]:
    """Read the records of a file. A line is a record's value, or an object with `value` (or `payload`). The
    object may also have `key`, `headers`, `topic`, `partition`, `offset` and `timestamp_ms`.

    Keys and values are text, null, {"base64": ...}, or JSON that is not inside a string. `topic` is used for
    records that name none. A record without an offset gets its number in the file, from 0.

    Raises SampleError for a line that is not JSON, or a file that cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SampleError(f"{path} cannot be read ({error.strerror})") from None
    offset = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _record(line, f"{path}:{number}", topic, offset)
            offset += 1


def _record(line: bytes, place: str, topic: str, offset: int) -> Record:
    try:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except DECODE_ERRORS as error:
        raise SampleError(
            f"{place}: not a JSON object ({error}); allowed: a record's value or an object with value and key"
        ) from None
    value_key = next((key for key in _VALUE_KEYS if key in fields), None)
    if value_key is None or not fields.keys() <= _RECORD_KEYS:
        return _made(topic, 0, offset, value=bytes(line.strip()), timestamp=(1, 0))
    try:
        return _made(
            _plain(fields, "topic", str, topic),
            _plain(fields, "partition", int, 0),
            _plain(fields, "offset", int, offset),
            key=_bytes(fields.get("key")),
            value=_bytes(fields[value_key]),
            headers=_headers(fields.get("headers")) or None,
            timestamp=(1, _plain(fields, "timestamp_ms", int, _plain(fields, "ts", int, 0))),
        )
    except (ValueError, OverflowError) as error:
        raise SampleError(f"{place}: {error}") from None


def _plain(fields: Mapping[str, msgspec.Raw], key: str, kind: type[Any], default: Any) -> Any:
    if key not in fields:
        return default
    try:
        return msgspec.json.decode(fields[key], type=kind)
    except msgspec.DecodeError as error:
        raise SampleError(f"{key}: {error}") from None


def _bytes(raw: msgspec.Raw | None) -> bytes | None:
    """The bytes of a key or value in one of its four forms."""
    if raw is None:
        return None
    data = msgspec.json.decode(raw)
    if data is None:
        return None
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, dict) and data.keys() == {"base64"} and isinstance(data["base64"], str):
        return base64.b64decode(data["base64"], validate=True)
    return bytes(raw)


def _headers(raw: msgspec.Raw | None) -> list[tuple[str, bytes | None]]:
    """Read headers: pairs, a flat list of names and values (as kcat prints them), or a mapping."""
    if raw is None:
        return []
    data = msgspec.json.decode(raw)
    if data is None:
        return []
    if not isinstance(data, dict | list):
        raise SampleError("headers: not pairs, a flat list of names and values or a mapping")
    if isinstance(data, dict):
        return [(name, _header(value)) for name, value in data.items()]
    if all(isinstance(item, list) and len(item) == 2 for item in data):
        return [(str(name), _header(value)) for name, value in data]
    if len(data) % 2:
        raise ValueError("headers: a name without its value")
    return [(str(name), _header(value)) for name, value in zip(data[::2], data[1::2], strict=True)]


def _header(value: Any) -> bytes | None:
    return None if value is None else _bytes(msgspec.Raw(msgspec.json.encode(value)))
