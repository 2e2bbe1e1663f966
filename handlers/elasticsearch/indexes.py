"""The index of a table: made, described, and what it remembers of where it is fed from.

Each revision of that (`handlers.progress.memory`) is the `null_value` of a field that no document has: fields
can be added to a mapping, and this of one that is there cannot be changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from handlers.elasticsearch.client import RefusedByCluster, SearchClient, told
from handlers.elasticsearch.mapping import ORIGIN, ORIGIN_FIELD, Field
from handlers.elasticsearch.options import ElasticsearchOptions
from handlers.logs import get_logger
from handlers.options.templates import Template
from handlers.progress.memory import LookAgain, Memory, Recalled, recalled, remembering

__all__ = ["Index", "IndexUnfit", "Indexes", "check_names", "index_name"]

log = get_logger("handlers.elasticsearch")

_NAME_BYTES = 255
_REFUSED = re.compile(r'[\\/*?"<>| ,#:\x00-\x1f]|^[-_+.]')
_FOUND = "?filter_path=*.mappings"
_METADATA = frozenset(
    (
        *("_id", "_index", "_source", "_routing", "_version", "_seq_no", "_primary_term", "_type", "_size"),
        *("_field_names", "_ignored", "_nested_path", "_doc_count", "_tier", "_data_stream_timestamp"),
    )
)
_MAKING = "binlane_makes_it"
"""In `_meta` of an index that is not finished."""
_MEMORY = "memory_"
"""Fields in `ORIGIN`."""


class IndexUnfit(Exception):
    """The index is not one that this table can be written to; the message says why, and what to do."""


class Index(msgspec.Struct, frozen=True):
    name: str
    path: str
    """In a URL: `/NAME`."""
    recalled: Recalled
    fields: Mapping[str, Any]

    @property
    def memory(self) -> Memory:
        return self.recalled.memory


def index_name(template: Template, database: str, table: str) -> str:
    """Raises IndexUnfit for a name that no index can have."""
    name = template.of_table(database, table).lower()
    wrong = _REFUSED.search(name)
    if wrong or len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        because = f"{wrong[0]!r} cannot stand there" if wrong else f"it has more than {_NAME_BYTES} bytes"
        raise IndexUnfit(
            f"{database}.{table} has no index: {name!r} is no name of one ({because}). Give this table a rule"
            f" with an index of its own (option index, without {{database}} or with other text)"
        )
    return name


class Indexes:
    """Any thread."""

    def __init__(self, client: SearchClient, options: ElasticsearchOptions) -> None:
        self._client = client
        self._options = options
        self._template = Template(options.index, row=False)

    def find(self, database: str, table: str) -> Index | None:
        """The table's index as it is now; None: there is none. Raises IndexUnfit, and as SearchClient."""
        name = index_name(self._template, database, table)
        path = f"/{quote(name, safe='')}"
        answer = self._client.request("GET", f"{path}/_mapping{_FOUND}", may=(404,))
        if answer.status == 404:
            return None
        found = {} if not isinstance(answer.body, dict) else answer.body
        if len(found) > 1:
            listed = ", ".join(sorted(found))
            raise IndexUnfit(f"{name} is an alias of several indexes ({listed}): a document has to be in one")
        mappings = next((one.get("mappings") or {} for one in found.values()), {})
        if _MAKING in (mappings.get("_meta") or {}):
            self._finish(path, mappings)
        index = Index(name=name, path=path, recalled=_recalled(name, mappings), fields=_fields(mappings))
        memory = index.memory
        if memory.table not in (None, f"{database}.{table}"):
            raise IndexUnfit(
                f"the index {name} holds the documents of {memory.table}, those of {database}.{table} need "
                f"another: names are in lower case there; see option index"
            )
        _check_origin(index)
        if memory.epoch > self._options.epoch:
            raise IndexUnfit(
                f"the index {name} was written under the option epoch: {memory.epoch}, it is "
                f"{self._options.epoch} here: what comes now would lose against all of that. Leave it as "
                f"high as it ever was, in all workers"
            )
        return index

    def find_or_make(self, database: str, table: str) -> Index:
        """The table's index. Raises as `find`."""
        index = self.find(database, table)
        if index is None:
            self._make(index_name(self._template, database, table), f"{database}.{table}")
            index = self.find(database, table)
        if index is None:
            raise IndexUnfit(f"the index of {database}.{table} is gone as soon as it is made")
        if ORIGIN not in index.fields:
            self.add(index, {ORIGIN: ORIGIN_FIELD})
        return index

    def add(self, index: Index, fields: Mapping[str, Field]) -> None:
        """Raises IndexUnfit where `create: false` forbids it, RefusedByCluster where there are others."""
        if not self._options.create:
            listed = ", ".join(sorted(fields))
            raise IndexUnfit(
                f"the mapping of {index.name} lacks {listed}, and create is false: add them to it"
            )
        check_names(index, fields)
        body = {"properties": fields}
        answer = self._client.request("PUT", f"{index.path}/_mapping", body, may=(400,))
        if answer.status == 400 and "total fields" in str(answer.body):
            # 1,000 by default. Fields are a table's columns here, and no source invents them by the row.
            limit = {"index.mapping.total_fields.limit": 2 * (len(index.fields) + len(fields)) + 1_000}
            self._client.request("PUT", f"{index.path}/_settings", limit)
            answer = self._client.request("PUT", f"{index.path}/_mapping", body, may=(400,))
        if answer.status == 400:
            raise RefusedByCluster(f"{index.name} takes no such fields: {told(answer.body)}")

    def remember(self, index: Index, memory: Memory) -> None:
        """Returns when this is what the index remembers. Raises LookAgain where somebody else was faster."""
        if memory == index.memory:
            return
        revision = _revision(index.recalled.number + 1, memory)
        body = {"properties": {ORIGIN: {"properties": revision}}}
        answer = self._client.request("PUT", f"{index.path}/_mapping", body, may=(400,))
        if answer.status != 400:
            return
        found: dict[str, Any] = self._client.request("GET", f"{index.path}/_mapping{_FOUND}").body
        mappings = next((one.get("mappings") or {} for one in found.values()), {})
        if _recalled(index.name, mappings).number > index.recalled.number:
            raise LookAgain(f"{index.name} remembers more by now")
        raise RefusedByCluster(f"{index.name} cannot remember where it is fed from: {told(answer.body)}")

    def _make(self, name: str, table: str) -> None:
        """With what its templates say; what is ours comes beside it."""
        if not self._options.create:
            raise IndexUnfit(f"there is no index {name} for {table}, and create is false: make it")
        path = f"/{quote(name, safe='')}"
        # From the beginning: of two tables that would have one index the later one is told so.
        memory = remembering(Memory(), table=table, topics=(), epoch=self._options.epoch)
        origin = {"properties": {**ORIGIN_FIELD["properties"], **_revision(1, memory)}}
        body = {
            "settings": {
                "index.gc_deletes": f"{max(1, round(self._options.keep_deletes * 1000))}ms",
                "index.mapping.coerce": False,
            },
            "mappings": {"properties": {ORIGIN: origin}, "_meta": {_MAKING: True}},
        }
        answer = self._client.request("PUT", path, body, may=(400,))
        if answer.status == 400:
            kind = answer.body.get("error", {}).get("type") if isinstance(answer.body, dict) else None
            if kind != "resource_already_exists_exception":  # another worker's
                raise RefusedByCluster(f"the index {name} cannot be made: {answer.body}")
            return
        log.info("index_made", index=name, table=table)

    def _finish(self, path: str, mappings: Mapping[str, Any]) -> None:
        """The second half of making an index, done by whoever finds it: templates may say `dynamic`."""
        meta = {name: value for name, value in mappings["_meta"].items() if name != _MAKING}
        dynamic = {} if "dynamic" in mappings else {"dynamic": False}
        self._client.request("PUT", f"{path}/_mapping", {"_meta": meta, **dynamic})


def check_names(index: Index, columns: Iterable[str]) -> None:
    """Raises IndexUnfit for columns whose names no document can have, alone or beside the others."""
    names = {*index.fields, *columns}
    for name in columns:
        parts = name.split(".")
        parents = (".".join(parts[:depth]) for depth in range(1, len(parts)))
        if name in _METADATA:
            because = "the cluster keeps that name for itself"
        elif not all(part.strip() for part in parts):
            because = "between its dots a part is empty"
        elif (parent := next((one for one in parents if one in names), None)) is not None:
            because = f"with the dot it is a part of {parent}, which is a column, too"
        else:
            continue
        raise IndexUnfit(
            f"{index.name}: no document can have the column {name!r}: {because}. Leave it out by the table's "
            f"rules (columns: exclude), or rename it in the source"
        )


def _fields(mappings: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Name -> field; `a.b` is a field, and the `a` that the cluster made to hold it is none."""
    found: dict[str, Any] = {}
    for name, field in (mappings.get("properties") or {}).items():
        if "properties" in field and start + name != ORIGIN:
            found |= _fields(field, f"{start}{name}.")
        else:
            found[start + name] = field
    return found


def _recalled(index: str, mappings: Mapping[str, Any]) -> Recalled:
    """Raises IndexUnfit."""
    own = (_fields(mappings).get(ORIGIN) or {}).get("properties") or {}
    texts = {name: field.get("null_value", "") for name, field in own.items() if name.startswith(_MEMORY)}
    earlier = (mappings.get("_meta") or {}).get("binlane") or {}  # its form before there were revisions
    try:
        return recalled(texts, msgspec.convert(earlier, Memory))
    except ValueError as error:
        raise IndexUnfit(f"{index}: {error}") from None


def _revision(number: int, memory: Memory) -> Mapping[str, Field]:
    text = msgspec.json.encode(memory).decode()
    return {
        f"{_MEMORY}{number}": {"type": "keyword", "index": False, "doc_values": False, "null_value": text}
    }


def _check_origin(index: Index) -> None:
    """Raises IndexUnfit where what documents tell of their origin cannot be searched for."""
    found = (index.fields.get(ORIGIN) or {}).get("properties") or {}
    foreign = [
        part
        for part, field in ORIGIN_FIELD["properties"].items()
        if part in found and found[part].get("type") != field["type"]
    ]
    if foreign:
        raise IndexUnfit(
            f"the mapping of {index.name} has fields of other types in {ORIGIN} ({', '.join(foreign)}): the "
            f"cluster made this index by itself, for a write that came just after it was deleted, or a "
            f"template is in the way. Delete the index, and have the table's rows sent again"
        )
