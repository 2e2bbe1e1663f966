"""Convert JSON values of any shape to the values of changes. Numbers are not rounded.

An integer becomes an int of any size. A number with a point or an exponent becomes a float, or a Decimal if a
float would not give its digits back. An object or array becomes compact text, with keys and numbers as sent.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec

from handlers.values.bounds import bounded

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a decoder: invalid JSON or a wrong type, bytes that are not UTF-8, too much nesting."""
JSON_ERRORS = (*DECODE_ERRORS, ArithmeticError)
"""DECODE_ERRORS, and the exceptions for a number that is too long for any source."""
READ_ERRORS = (*JSON_ERRORS, ValueError)
"""JSON_ERRORS, and the exception for a value that does not fit its column's type."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SPACE = re.compile(rb"\s")


def number(text: str) -> float | Decimal:
    """Read a JSON number with a point or an exponent: a float if it gives its digits back, else a Decimal.

    For `float_hook` of msgspec's decoder. Raises ArithmeticError for a number that is too long for any
    source. The decoder turns BeyondBounds into a DecodeError."""
    value = float(text)
    if repr(value) == text:
        return value
    exact = bounded(Decimal(text))
    return value if Decimal(repr(value)) == exact else exact


read_json: Any = msgspec.json.Decoder(float_hook=number).decode
"""Read JSON as plain values. Raises one of JSON_ERRORS."""
_read_text: Any = msgspec.json.Decoder(str).decode


def object_in(value: bytes) -> dict[str, Any] | None:
    """Read a JSON object. None for any other content."""
    try:
        found = read_json(value)
    except JSON_ERRORS:
        return None
    return found if isinstance(found, dict) else None


def compact(raw: bytes) -> str:
    """Return JSON without spaces. The order of keys and the spelling of numbers stay unchanged.

    `raw` is valid JSON. Escapes that JSON does not require are removed, because they belong to the message
    and not to the document. Raises one of JSON_ERRORS."""
    # Format only JSON that contains spaces. Most JSON contains none, not even in its strings.
    text = msgspec.json.format(raw, indent=-1) if _SPACE.search(raw) else raw
    if b"\\" in text:
        text = _STRING.sub(_without_escapes, text)
    return text.decode()


def _without_escapes(found: re.Match[bytes]) -> bytes:
    literal = found[0]
    return msgspec.json.encode(_read_text(literal)) if b"\\" in literal else literal


def plain(raw: msgspec.Raw) -> Any:
    """Read the value of a column whose type is unknown. Raises one of JSON_ERRORS."""
    text = bytes(raw)
    return compact(text) if text[:1] in (b"{", b"[") else read_json(text)


def text_of(raw: msgspec.Raw) -> str:
    """Return a JSON string's characters, or any other value's spelling. Raises one of JSON_ERRORS."""
    text = bytes(raw)
    found: str = _read_text(text) if text[:1] == b'"' else text.decode()
    return found
