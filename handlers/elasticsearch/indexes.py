"""The index of a table: made, described, and what its `_meta` remembers of where it is fed from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from handlers.elasticsearch.client import RefusedByCluster, SearchClient
from handlers.elasticsearch.mapping import ORIGIN, ORIGIN_FIELD, Field
from handlers.elasticsearch.options import ElasticsearchOptions
from handlers.logs import get_logger
from handlers.options.templates import Template
from handlers.progress.versions import Topic

__all__ = ["Index", "IndexUnfit", "Indexes", "index_name"]

log = get_logger("handlers.elasticsearch")

_NAME_BYTES = 255
_REFUSED = re.compile(r'[\\/*?"<>| ,#:\x00-\x1f]|^[-_+.]')
_FOUND = "?filter_path=*.mappings"


class IndexUnfit(Exception):
    """The index is not one that this table can be written to; the message says why, and what to do."""


class Index(msgspec.Struct, frozen=True):
    name: str
    path: str
    """In a URL: `/NAME`."""
    table: str | None
    """Whose documents it holds; None: nobody has said so yet."""
    topics: Sequence[Topic]
    epoch: int
    """The highest option `epoch` that it was written under."""
    fields: Mapping[str, Any]
    meta: Mapping[str, Any]
    """All of `_meta`, others' too."""


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
        meta = mappings.get("_meta") or {}
        ours = meta.get("binlane") or {}
        index = Index(
            name=name,
            path=path,
            table=ours.get("table"),
            topics=[Topic(*each) for each in ours.get("topics", ())],
            epoch=ours.get("epoch", 0),
            fields=mappings.get("properties") or {},
            meta=meta,
        )
        if index.table not in (None, f"{database}.{table}"):
            raise IndexUnfit(
                f"the index {name} holds the documents of {index.table}, those of {database}.{table} need "
                f"another: names are in lower case there; see option index"
            )
        _check_origin(index)
        if index.epoch > self._options.epoch:
            raise IndexUnfit(
                f"the index {name} was written under the option epoch: {index.epoch}, it is "
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
        self._client.request("PUT", f"{index.path}/_mapping", {"properties": fields})

    def remember(self, index: Index, table: str, topics: Sequence[Topic]) -> None:
        """Which table and topics it is fed from, and under which epoch."""
        meta = {**index.meta, "binlane": self._ours(table, topics, index.epoch)}
        self._client.request("PUT", f"{index.path}/_mapping", {"_meta": meta})

    def _ours(self, table: str, topics: Sequence[Topic], epoch: int) -> dict[str, Any]:
        return {
            "table": table,
            "topics": [list(each) for each in topics],
            "epoch": max(epoch, self._options.epoch),
        }

    def _make(self, name: str, table: str) -> None:
        """With what its templates say; what is ours comes beside it."""
        if not self._options.create:
            raise IndexUnfit(f"there is no index {name} for {table}, and create is false: make it")
        path = f"/{quote(name, safe='')}"
        body = {
            "settings": {
                "index.gc_deletes": f"{max(1, round(self._options.keep_deletes * 1000))}ms",
                "index.mapping.coerce": False,
            },
            # From the beginning: of two tables that would have one index the later one is told so.
            "mappings": {
                "_meta": {"binlane": self._ours(table, (), 0)},
                "properties": {ORIGIN: ORIGIN_FIELD},
            },
        }
        answer = self._client.request("PUT", path, body, may=(400,))
        if answer.status == 400:
            kind = answer.body.get("error", {}).get("type") if isinstance(answer.body, dict) else None
            if kind != "resource_already_exists_exception":  # another worker's
                raise RefusedByCluster(f"the index {name} cannot be made: {answer.body}")
            return
        found = self._client.request("GET", f"{path}/_mapping{_FOUND}").body
        mappings = next(iter(found.values()))["mappings"]
        if "dynamic" not in mappings:
            self._client.request("PUT", f"{path}/_mapping", {"dynamic": False})
        log.info("index_made", index=name, table=table)


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
