"""Values that PostgreSQL's log does not contain: large values (TOAST) that an update did not change.

The connector sends placeholders for them: io.debezium.connector.postgresql.UnchangedToastedPlaceholder."""

from __future__ import annotations

import base64
from typing import Any

from worker.formats.debezium.source import Payload

_TEXT = "__debezium_unavailable_value"
_BASE64 = base64.b64encode(_TEXT.encode()).decode()
_HEX = _TEXT.encode().hex()
_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""The result of java.util.UUID.nameUUIDFromBytes for the text."""
_NUMBERS = list(_TEXT.encode())
AVRO_MARK = b"".join(bytes((2 * code & 0x7F | 0x80, code >> 6)) for code in _NUMBERS[:10])
"""The first bytes of the numbers in Avro, in which each number takes two bytes."""
_MARKS = ("debezium_unavailable", _BASE64, _HEX, _UUID, "95,95,100,101,98,101,122,105,117,109")
_MARK_BYTES = tuple(mark.encode() for mark in _MARKS)
_TEXTS = frozenset((_TEXT, _BASE64, _HEX, f'{{"{_TEXT}":"{_TEXT}"}}'))
"""Placeholders of text, json, xml and numbers as text, of bytes, and of hstore as text."""
_VALUES: tuple[Any, ...] = ([_TEXT], [_BASE64], [_HEX], [_UUID], _NUMBERS, {_TEXT: _TEXT})
"""Placeholders of arrays, and of hstore as a map."""


def lacks_values(payload: Payload) -> bool:
    """Whether a row may contain a placeholder."""
    text = bytes(payload)
    return any(mark in text for mark in _MARK_BYTES)


def is_unavailable(value: Any) -> bool:
    """Whether a plain JSON value is a placeholder."""
    return value in _TEXTS if isinstance(value, str) else value in _VALUES
