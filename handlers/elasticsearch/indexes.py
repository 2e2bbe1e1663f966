"""Operations on the index of a table: find, create, write and empty it, and remember its sources.

Each revision of the memory (`handlers.versioned.versions`) is the `null_value` of a field that no document
has. A field can be added to a mapping, but its `null_value` cannot be changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from handlers.api import HandlerContext, Row, TargetUnavailable
from handlers.elasticsearch.client import (
    ElasticsearchOptions,
    Item,
    SearchClient,
    check_cluster,
    error_type,
    told,
    write,
)
from handlers.elasticsearch.index import (
    MEMORY,
    Document,
    Index,
    check_names,
    document_id,
    document_of,
    index_name,
    index_of,
    read_documents,
)
from handlers.elasticsearch.mapping import ORIGIN, ORIGIN_FIELD, Field, fields_of
from handlers.http.parts import RequestRefused, RowRefused
from handlers.options.templates import MissingValue, Template
from handlers.values.bounds import BeyondBounds
from handlers.versioned.row_states import Held, State, new_columns, with_held_rows
from handlers.versioned.versions import RENAMED, Memory, Unfit

_FOUND = "?filter_path=*.mappings,*.aliases,*.data_stream,*.settings.index.mapping.source"
_MAKING = "binlane_makes_it"
"""Key in `_meta` of an index whose creation is not finished."""
_READ_AT_ONCE = 1_000
_REMOVED_AT_ONCE = 5_000  # a search returns at most 10,000
_VERSION, _PARTITION = f"{ORIGIN}.version", f"{ORIGIN}.partition"


class Indexes:
    """The indexes of one cluster, whose documents have versions. Any thread."""

    keeps_all = False

    def __init__(self, options: ElasticsearchOptions, context: HandlerContext) -> None:
        self._client = SearchClient(options, context.folder, context.lanes)
        self._options = options
        self._template = Template(options.index, row=False)

    def close(self) -> None:
        self._client.close()

    def check(self) -> None:
        """Check the cluster. Raises Unfit, TargetUnavailable, RequestRefused."""
        check_cluster(self._client, self._options)

    def name_of(self, database: str, table: str) -> str:
        return f"index {index_name(self._template, database, table)}"

    def key_of(self, place: Index | None, row: Row, key_columns: tuple[str, ...] | None) -> str:
        if ORIGIN in row:
            raise MissingValue(f"its column {ORIGIN} has a name reserved for the origin: rename it")
        return document_id(row, key_columns)

    def find(self, database: str, table: str) -> Index | None:
        return self._named(index_name(self._template, database, table))

    def _named(self, name: str) -> Index | None:
        path = f"/{quote(name, safe='')}"
        answer = self._client.request("GET", f"{path}{_FOUND}", may=(404,))
        if answer.status == 404:
            if error_type(answer.body) == "index_not_found_exception":
                return None
            raise TargetUnavailable(f"{path[1:]}: another server answers 404, not a cluster")
        found = {} if not isinstance(answer.body, dict) else answer.body
        if len(found) > 1:
            listed = ", ".join(sorted(found))
            raise Unfit(f"{name} is an alias of several indexes ({listed}): a document must be in one index")
        told_: Mapping[str, Any] = next(iter(found.values()), {})
        mappings = told_.get("mappings") or {}
        if _MAKING in (mappings.get("_meta") or {}):
            self._finish(path, mappings)
        return index_of(name, told_)

    def last_version(self, place: Index) -> int:
        query = {
            "size": 1,
            "_source": ORIGIN,
            "docvalue_fields": [_VERSION],
            "sort": [{_VERSION: {"order": "desc", "unmapped_type": "long"}}],
        }
        for hit in self._found(place, query):
            told_, known = hit.get("_source", {}).get(ORIGIN), hit.get("fields", {}).get(_VERSION, [0])
            if told_ is not None and known == [0]:
                raise Unfit(
                    f"{place.name} has documents that a TRUNCATE would not find: when they were written, its "
                    f"mapping had no {ORIGIN}. Create it with the former mapping, and copy them again"
                )
            return int(known[0])
        return 0

    def lacking(
        self, place: Index | None, states: Sequence[State], key: Sequence[str]
    ) -> Mapping[str, Field]:
        is_other = place is not None and key and place.memory.key not in ((), tuple(key))
        if place is not None and is_other and self._holds_earlier(place, states):
            raise Unfit(
                f"the documents of {place.name} have ids from {', '.join(place.memory.key)}, but the "
                f"source's primary key is {', '.join(key)}: two rows could have the same id. {RENAMED}. "
                "Otherwise route the table to another index (option index), with a new snapshot"
            )
        known = {} if place is None else place.columns
        # An object whose fields a template defines is mapped, too.
        objects = {name[:at] for name in known for at, letter in enumerate(name) if letter == "."}
        found = fields_of(new_columns(states, {*known, *objects}))
        return found if ORIGIN in known else {ORIGIN: ORIGIN_FIELD, **found}

    def _holds_earlier(self, place: Index, states: Sequence[State]) -> bool:
        """Whether there are older documents, or any of other partitions. A DROP TABLE before removes them."""
        last: dict[str, int] = {}
        for state in states:
            last[state.partition] = max(state.version, last.get(state.partition, 0))
        later = [
            {"bool": {"filter": [{"term": {_PARTITION: name}}, {"range": {_VERSION: {"gte": version}}}]}}
            for name, version in last.items()
        ]
        return bool(self._found(place, {"size": 1, "_source": False, "query": {"bool": {"must_not": later}}}))

    def make(
        self, name: tuple[str, str], columns: Mapping[str, Field], key: Sequence[str], memory: Memory
    ) -> None:
        """Create the index with its templates' settings and binlane's. Fields of columns are added later."""
        index = index_name(self._template, *name)
        path = f"/{quote(index, safe='')}"
        origin = {"properties": {**ORIGIN_FIELD["properties"], **_revision(memory)}}
        body = {
            "settings": {
                "index.gc_deletes": f"{max(1, round(self._options.keep_deletes * 1000))}ms",
                "index.mapping.coerce": False,
            },
            "mappings": {"properties": {ORIGIN: origin}, "_meta": {_MAKING: True}},
        }
        answer = self._client.request("PUT", path, body, may=(400,))
        # Another worker may have created it.
        if answer.status == 400 and error_type(answer.body) != "resource_already_exists_exception":
            raise Unfit(f"the index {index} cannot be created: {told(answer.body)}")

    def _finish(self, path: str, mappings: Mapping[str, Any]) -> None:
        """Finish the creation of an index. Whichever worker finds it does so. Templates may set `dynamic`."""
        meta = {name: value for name, value in mappings["_meta"].items() if name != _MAKING}
        dynamic = {} if "dynamic" in mappings else {"dynamic": False}
        self._client.request("PUT", f"{path}/_mapping", {"_meta": meta, **dynamic})

    def add(self, place: Index, columns: Mapping[str, Field]) -> None:
        """Add fields. Raises RequestRefused if the cluster refuses them, as for fields of another type."""
        check_names(place, columns)
        because = self._map(place, columns)
        if because is not None:
            raise RequestRefused(f"{place.name} does not accept these fields: {because}")

    def remember(self, place: Index, memory: Memory) -> None:
        because = self._map(place, {ORIGIN: {"properties": _revision(memory)}})
        if because is not None:
            now = self._named(place.name)
            if now is not None and now.memory.number < memory.number:
                raise Unfit(f"{place.name} cannot store where its rows are from: {because}")

    def _map(self, place: Index, fields: Mapping[str, Field]) -> str | None:
        """Add fields. Return the cluster's reason if it refuses them, else None."""
        path, body = f"{place.path}/_mapping", {"properties": fields}
        answer = self._client.request("PUT", path, body, may=(400,))
        if answer.status == 400 and "total fields" in str(answer.body):
            # The default is 1,000. Fields are columns here, so the data of rows cannot add any.
            limit = {"index.mapping.total_fields.limit": 2 * (len(place.columns) + len(fields)) + 1_000}
            self._client.request("PUT", f"{place.path}/_settings", limit)
            answer = self._client.request("PUT", path, body, may=(400,))
        return told(answer.body) if answer.status == 400 else None

    # ---- rows

    def write(self, place: Index, states: Sequence[State], check: Callable[[State, Held], None]) -> int:
        """Write all states. The cluster refuses versions that are not higher; those rows are then checked."""
        late: dict[str, State] = {}

        def read(some: Sequence[State], is_bounded: bool) -> Mapping[str, Mapping[str, Any]]:
            return self._held(place, [state.text for state in some], is_bounded)

        for some, held in with_held_rows(states, read):
            items: list[Item] = []
            for state in some:
                try:
                    document = document_of(state, held, place)
                except (TypeError, BeyondBounds, UnicodeEncodeError) as error:
                    raise RowRefused(state.at, str(error)) from None
                items.append(Item(id=state.text, version=state.version, at=state.at, document=document))
            written = {item.id for item in write(self._client, place.path, items, self._options.max_bytes)}
            late |= {state.text: state for state in some if state.text in written}
        ids = list(late)
        for start in range(0, len(ids), _READ_AT_ONCE):
            these = ids[start : start + _READ_AT_ONCE]
            for found in self._documents(place, these, f"?_source_includes={ORIGIN}"):
                origin = msgspec.json.decode((found.source or {}).get(ORIGIN, b"null")) or {}
                name = f"the document {found.id} of {place.name}"
                check(late[found.id], Held(name, found.version, origin.get("partition")))
        return len(late)

    def _held(self, place: Index, ids: Sequence[str], is_bounded: bool) -> Mapping[str, Mapping[str, Any]]:
        """Return id -> current document. Raises AnswerTooLarge, Unfit."""
        if not place.keeps_source:
            raise Unfit(
                f"{place.name} does not store the whole _source (see _source in its mapping): values that an "
                "update does not send would be lost"
            )
        found = self._documents(place, ids, "", self._options.max_bytes if is_bounded else None)
        return {each.id: each.source or {} for each in found}

    def _documents(
        self, place: Index, ids: Sequence[str], query: str, most_bytes: int | None = None
    ) -> list[Document]:
        """Return the documents that exist. Raises AnswerTooLarge."""
        path = f"{place.path}/_mget{query}"
        body = {"ids": list(ids)}
        answer = self._client.request("POST", path, body, read=read_documents, most_bytes=most_bytes)
        for each in answer.body.docs:
            if each.error is not None:
                # Its shard is unavailable, so it is unknown whether the document exists.
                raise TargetUnavailable(f"_mget of {place.name}: {told(each.error)}")
        return [each for each in answer.body.docs if each.found]

    # ---- whole tables

    def empty(self, place: Index, *, version: int, partition: str, time: int) -> int:
        own = {"term": {_PARTITION: partition}}
        older = {"bool": {"filter": [own, {"range": {_VERSION: {"lt": version}}}]}}
        earlier = {"bool": {"must_not": [own], "filter": [{"range": {f"{ORIGIN}.time": {"lt": time}}}]}}
        query: dict[str, Any] = {
            "size": _REMOVED_AT_ONCE,
            "_source": False,
            "docvalue_fields": [_VERSION, _PARTITION],
            "query": {"bool": {"should": [older, earlier], "minimum_should_match": 1}},
        }
        removed = 0
        while True:
            hits = self._found(place, query)
            if not hits:
                return removed
            items: list[Item] = []
            for hit in hits:
                is_own = hit["fields"][_PARTITION] == [partition]
                reached = version if is_own else hit["fields"][_VERSION][0] + 1
                items.append(Item(id=hit["_id"], version=reached, at=0, document=None))
            late = write(self._client, place.path, items, self._options.max_bytes)
            removed += len(items) - len(late)
            if len(late) == len(items):
                raise RequestRefused(
                    f"{place.name} is not emptied: the versions of its documents differ from those in "
                    f"{ORIGIN}; was it copied without them (_reindex with version_type: external keeps them)?"
                )

    def _found(self, place: Index, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the hits. Raises TargetUnavailable if a shard did not answer: its documents would stay."""
        found: dict[str, Any] = {}
        # A search sees only the state of the last refresh.
        for path, body in (("_refresh", None), ("_search?allow_partial_search_results=false", query)):
            found = self._client.request("POST", f"{place.path}/{path}", body).body
            if (found.get("_shards") or {}).get("failed"):
                raise TargetUnavailable(f"{place.name}/{path.partition('?')[0]}: some shards did not answer")
        hits: list[dict[str, Any]] = found["hits"]["hits"]
        return hits


def _revision(memory: Memory) -> Mapping[str, Field]:
    field = {"type": "keyword", "index": False, "doc_values": False, "null_value": memory.text}
    return {f"{MEMORY}{memory.number}": field}
