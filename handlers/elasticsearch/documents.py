"""The id of a row's document."""

from __future__ import annotations

import hashlib

from handlers.api import Row
from handlers.elasticsearch.mapping import ORIGIN
from handlers.options.templates import MissingValue, Template

__all__ = ["checked_id", "document_id"]

_ID = Template("{key}")
_ID_BYTES = 512  # https://www.elastic.co/docs/reference/elasticsearch/mapping-reference/mapping-id-field
_HASHED = "sha256-"


def document_id(row: Row, key_columns: tuple[str, ...] | None) -> str:
    """As the redis handler's {key}; what is too long, or empty, by its hash. Raises MissingValue, TypeError.

    >>> document_id({"a": 1, "b": "x:y"}, ("a", "b"))
    '1:x%3Ay'
    """
    text = _ID.key("", "", row, key_columns)
    data = text.encode("utf-8", "surrogatepass")
    if 0 < len(data) <= _ID_BYTES and not text.startswith(_HASHED):
        return text
    return _HASHED + hashlib.sha256(data).hexdigest()


def checked_id(row: Row, key_columns: tuple[str, ...] | None) -> str:
    """`document_id`. Raises MissingValue, TypeError; also for a row that has a column of our own's name."""
    if ORIGIN in row:
        raise MissingValue(f"its column {ORIGIN} is what documents tell of their origin: rename it")
    return document_id(row, key_columns)
