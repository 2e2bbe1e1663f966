"""Values of PostgreSQL that the log does not hold: large ones (TOAST), where an update did not change them.

The connector sends placeholders instead: io.debezium.connector.postgresql.UnchangedToastedPlaceholder."""

from __future__ import annotations

import base64
from typing import Any

from worker.formats.debezium.source import Payload

_TEXT = "__debezium_unavailable_value"
_BASE64 = base64.b64encode(_TEXT.encode()).decode()
_HEX = _TEXT.encode().hex()
_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""java.util.UUID.nameUUIDFromBytes of the text."""
_NUMBERS = list(_TEXT.encode())
AVRO_MARK = b"".join(bytes((2 * code & 0x7F | 0x80, code >> 6)) for code in _NUMBERS[:10])
"""How the numbers begin in Avro, where each takes two bytes."""
_MARKS = ("debezium_unavailable", _BASE64, _HEX, _UUID, "95,95,100,101,98,101,122,105,117,109")
_MARK_BYTES = tuple(mark.encode() for mark in _MARKS)
_TEXTS = frozenset((_TEXT, _BASE64, _HEX, f'{{"{_TEXT}":"{_TEXT}"}}'))
"""Of text, json, xml, numbers as text; of bytes; of hstore as text."""
_VALUES: tuple[Any, ...] = ([_TEXT], [_BASE64], [_HEX], [_UUID], _NUMBERS, {_TEXT: _TEXT})
"""Of arrays, and of hstore as a map."""


def lacks_values(payload: Payload) -> bool:
    """Whether a row may hold such a placeholder."""
    text = bytes(payload)
    return any(mark in text for mark in _MARK_BYTES)


def is_unavailable(value: Any) -> bool:
    """Whether a value, as plain JSON gives it, is one."""
    return value in _TEXTS if isinstance(value, str) else value in _VALUES
