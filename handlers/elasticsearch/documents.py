"""A row's document: its id and its contents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from handlers.api import Row
from handlers.elasticsearch.index import Index
from handlers.elasticsearch.mapping import ORIGIN, json_document
from handlers.options.templates import Template
from handlers.versioned.last_states import State

_encode = msgspec.json.Encoder().encode

_ID = Template("{key}")
_ID_BYTES = 512  # https://www.elastic.co/docs/reference/elasticsearch/mapping-reference/mapping-id-field
_HASHED = "sha256-"


def document_id(row: Row, key_columns: tuple[str, ...] | None) -> str:
    """Return {key} as in redis, or its hash if it is too long or empty. Raises MissingValue, TypeError.

    >>> document_id({"a": 1, "b": "x:y"}, ("a", "b"))
    '1:x%3Ay'
    """
    text = _ID.key("", "", row, key_columns)
    data = text.encode("utf-8", "surrogatepass")
    if 0 < len(data) <= _ID_BYTES and not text.startswith(_HASHED):
        return text
    return _HASHED + hashlib.sha256(data).hexdigest()


class Document(msgspec.Struct):
    """One document in an answer of `_mget`."""

    id: str = msgspec.field(name="_id")
    found: bool = False
    version: int = msgspec.field(name="_version", default=0)
    source: dict[str, msgspec.Raw] | None = msgspec.field(name="_source", default=None)
    """The values with their spelling: 9061.00 stays 9061.00."""
    error: Any = None


class Documents(msgspec.Struct):
    docs: list[Document]


def document_of(state: State, held: Mapping[str, Mapping[str, Any]], place: Index) -> bytes | None:
    """Return the document as JSON; None for a deleted row. `held`: id -> current document, for rows that lack
    columns. Raises TypeError, BeyondBounds, UnicodeEncodeError if a value has no JSON form."""
    if state.row is None:
        return None
    row = json_document(state.row, state.types)
    kept = {} if state.whole else held.get(state.text, {})
    if place.is_strict:
        known = {*place.columns, *kept}
        row = {name: value for name, value in row.items() if value is not None or name in known}
    origin = {"version": state.version, "partition": state.partition, "time": state.time}
    return _encode({**kept, **row, ORIGIN: origin})
