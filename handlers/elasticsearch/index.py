"""The description of an index, the documents of its rows, and checks of the names of indexes and fields."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from handlers.api import Row
from handlers.elasticsearch.mapping import ORIGIN, ORIGIN_FIELD, json_document
from handlers.options.templates import Template
from handlers.versioned.row_states import State
from handlers.versioned.versions import Memory, Unfit, UnfitColumn, recalled

MEMORY = "memory_"
"""Prefix of fields in `ORIGIN` that contain a revision of the memory."""
_NAME_BYTES = 255
_REFUSED = re.compile(r'[\\/*?"<>| ,#:\x00-\x1f]|^[-_+.]')
_METADATA = frozenset(
    (
        *("_id", "_index", "_source", "_routing", "_version", "_seq_no", "_primary_term", "_type", "_size"),
        *("_field_names", "_ignored", "_nested_path", "_doc_count", "_tier", "_data_stream_timestamp"),
    )
)
_encode = msgspec.json.Encoder().encode

_ID = Template("{key}")
_ID_BYTES = 512  # https://www.elastic.co/docs/reference/elasticsearch/mapping-reference/mapping-id-field
_HASHED = "sha256-"


class Index(msgspec.Struct, frozen=True):
    name: str
    columns: Mapping[str, Any]
    """Name -> field."""
    memory: Memory
    keeps_source: bool
    """Whether `_source` returns a document as it was sent."""
    is_strict: bool
    """Whether it refuses documents with other columns, even if they are null."""

    @property
    def path(self) -> str:
        """The path in URLs: `/NAME`."""
        return f"/{quote(self.name, safe='')}"


def index_of(name: str, told: Mapping[str, Any]) -> Index:
    """Return an index. `told`: the cluster's description. Raises Unfit."""
    mappings = told.get("mappings") or {}
    _check_writes(name, told, mappings)
    source = mappings.get("_source") or {}
    mode = (((told.get("settings") or {}).get("index") or {}).get("mapping") or {}).get("source") or {}
    is_whole = source in ({}, {"enabled": True}, {"mode": "stored"})
    keeps_source = is_whole and mode.get("mode", "stored") == "stored"
    fields = _fields(mappings)
    own = (fields.get(ORIGIN) or {}).get("properties") or {}
    _check_origin(name, own)
    texts = {key: field.get("null_value", "") for key, field in own.items() if key.startswith(MEMORY)}
    is_strict = str(mappings.get("dynamic")).startswith("strict")
    return Index(name, fields, recalled(name, texts), keeps_source, is_strict)


def index_name(template: Template, database: str, table: str) -> str:
    """Return the name of a table's index. Raises Unfit if no index can have it."""
    name = template.of_table(database, table).lower()
    wrong = _REFUSED.search(name)
    if wrong or len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        because = f"{wrong[0]!r} is not allowed there" if wrong else f"it has more than {_NAME_BYTES} bytes"
        raise Unfit(
            f"{database}.{table} has no index: {name!r} is not a valid index name ({because}). Give this "
            "table a rule with its own index (option index, without {database} or with other text)"
        )
    return name


def check_names(index: Index, columns: Iterable[str]) -> None:
    """Raise UnfitColumn if a column's name is impossible in a document, alone or with the other names."""
    names = {*index.columns, *columns}
    for name in columns:
        parts = name.split(".")
        parents = (".".join(parts[:depth]) for depth in range(1, len(parts)))
        if name in _METADATA:
            because = "the cluster reserves that name"
        elif not all(part.strip() for part in parts):
            because = "a part between its dots is empty"
        elif (parent := next((one for one in parents if one in names), None)) is not None:
            because = f"its dot makes it a part of {parent}, which is also a column"
        else:
            continue
        raise UnfitColumn(
            f"{index.name}: a document cannot have the column {name!r}: {because}. Leave it out with the "
            "table's rules (columns: exclude), or rename it in the source"
        )


def _fields(mappings: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Return name -> field. `a.b` is a field; the object `a` that the cluster created for it is not."""
    found: dict[str, Any] = {}
    for name, field in (mappings.get("properties") or {}).items():
        if "properties" in field and start + name != ORIGIN:
            found |= _fields(field, f"{start}{name}.")
        else:
            found[start + name] = field
    return found


def _check_writes(name: str, told: Mapping[str, Any], mappings: Mapping[str, Any]) -> None:
    """Raise Unfit if documents cannot be overwritten, or if a search does not find all of them."""
    alias = (told.get("aliases") or {}).get(name) or {}
    for is_so, because in (
        ("data_stream" in told, "is a data stream, which accepts no new version of a document"),
        ((mappings.get("_routing") or {}).get("required"), "requires a routing value, but rows have none"),
        ("filter" in alias, "is an alias with a filter: a TRUNCATE would not find all documents"),
        (alias.get("is_write_index") is False, "is an alias that accepts no writes"),
    ):
        if is_so:
            raise Unfit(f"{name} {because}. Route the table to its own index (option index)")


def _check_origin(index: str, found: Mapping[str, Any]) -> None:
    """Raise Unfit if the fields for a document's origin have types that cannot be searched as needed."""
    foreign = [
        part
        for part, field in ORIGIN_FIELD["properties"].items()
        if part in found and found[part].get("type") != field["type"]
    ]
    if foreign:
        raise Unfit(
            f"the mapping of {index} has fields of other types in {ORIGIN} ({', '.join(foreign)}): the "
            "cluster created this index itself, because of a write just after it was deleted, or a template "
            "interferes. Delete the index, and have the source send the table's rows again"
        )


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


read_documents = msgspec.json.Decoder(Documents).decode


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
