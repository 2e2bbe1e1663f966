"""JSON values of any shape as the values that changes carry: nothing is rounded, nothing loses its spelling.

An integer is an int of any size; a number with a point or an exponent is a float, or a Decimal where a float
would not give its digits back; an object or an array is its own text, compact, with keys and numbers as sent.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec

from handlers.decimals import bounded

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises: bad JSON or a wrong type, bytes that are not UTF-8, too deep a nesting."""
JSON_ERRORS = (*DECODE_ERRORS, ArithmeticError)
"""The same, and a number beyond any bound."""
READ_ERRORS = (*JSON_ERRORS, ValueError)
"""The same, and what a value of another type than its column's raises."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SPACE = re.compile(rb"\s")


def number(text: str) -> float | Decimal:
    """A JSON number with a point or an exponent: a float if it gives the same digits back, else a Decimal.

    Made for `float_hook` of msgspec's decoder. Raises ArithmeticError for an exponent beyond any bound; the
    decoder makes a DecodeError of BeyondBounds."""
    value = float(text)
    if repr(value) == text:
        return value
    exact = bounded(Decimal(text))
    return value if Decimal(repr(value)) == exact else exact


read_json: Any = msgspec.json.Decoder(float_hook=number).decode
"""JSON as plain values. Raises one of JSON_ERRORS."""
_read_text: Any = msgspec.json.Decoder(str).decode


def compact(raw: bytes) -> str:
    """JSON without spaces; the order of keys and the spelling of numbers stay as they are.

    `raw` is what a decoder found to be JSON. Characters that need no escape lose theirs: an escape belongs to
    the message that the text came in. Raises one of JSON_ERRORS."""
    # Most writers leave no spaces, and then none are in the text's strings either.
    text = msgspec.json.format(raw, indent=-1) if _SPACE.search(raw) else raw
    if b"\\" in text:
        text = _STRING.sub(_without_escapes, text)
    return text.decode()


def _without_escapes(found: re.Match[bytes]) -> bytes:
    literal = found[0]
    return msgspec.json.encode(_read_text(literal)) if b"\\" in literal else literal


def plain(raw: msgspec.Raw) -> Any:
    """The value of a column whose type is not known. Raises one of JSON_ERRORS."""
    text = bytes(raw)
    return compact(text) if text[:1] in (b"{", b"[") else read_json(text)


def text_of(raw: msgspec.Raw) -> str:
    """The characters of a JSON string; of anything else its spelling. Raises one of JSON_ERRORS."""
    text = bytes(raw)
    found: str = _read_text(text) if text[:1] == b'"' else text.decode()
    return found
