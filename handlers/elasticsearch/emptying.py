"""TRUNCATE and DROP TABLE: documents that are older than the statement are removed, each with a version."""

from __future__ import annotations

from typing import Any

from handlers.api import TargetUnavailable
from handlers.elasticsearch.bulk import Item, write
from handlers.elasticsearch.client import RefusedByCluster, SearchClient
from handlers.elasticsearch.indexes import Index
from handlers.elasticsearch.mapping import ORIGIN

__all__ = ["empty"]

_VERSION, _PARTITION = f"{ORIGIN}.version", f"{ORIGIN}.partition"
_ALL = "?allow_partial_search_results=false"
_AT_ONCE = 5_000  # a search gives 10,000 at most


def empty(
    client: SearchClient, index: Index, *, version: int, partition: str, time: int, most_bytes: int
) -> int:
    """Remove what is older than a statement at this place; how many documents there were.

    Of its own partition that is by version: what comes after it stays, also when it comes again. Versions of
    other partitions tell nothing about it: of those, what the source changed before it by its clock.
    """
    own = {"term": {_PARTITION: partition}}
    older = {"bool": {"filter": [own, {"range": {_VERSION: {"lt": version}}}]}}
    earlier = {"bool": {"must_not": [own], "filter": [{"range": {f"{ORIGIN}.time": {"lt": time}}}]}}
    query: dict[str, Any] = {
        "size": _AT_ONCE,
        "_source": False,
        "docvalue_fields": [_VERSION, _PARTITION],
        "query": {"bool": {"should": [older, earlier], "minimum_should_match": 1}},
    }
    removed = 0
    while True:
        _of_all_shards(client, f"{index.path}/_refresh")  # a search sees what was there at the last one
        hits = _of_all_shards(client, f"{index.path}/_search{_ALL}", query)["hits"]["hits"]
        if not hits:
            return removed
        items = [
            Item(
                id=hit["_id"],
                # One of this place would stop what comes of another partition: it is no place there.
                version=version
                if hit["fields"][_PARTITION] == [partition]
                else hit["fields"][_VERSION][0] + 1,
                at=0,
                document=None,
            )
            for hit in hits
        ]
        late = write(client, index.path, items, most_bytes)
        removed += len(items) - len(late)
        if len(late) == len(items):
            raise RefusedByCluster(
                f"{index.name} is not emptied: its documents have other versions than they tell in {ORIGIN}; "
                f"was it copied without them (_reindex with version_type: external keeps them)?"
            )


def _of_all_shards(client: SearchClient, path: str, body: Any = None) -> dict[str, Any]:
    """Raises TargetUnavailable where some did not answer: what they hold would stay."""
    found: dict[str, Any] = client.request("POST", path, body).body
    if (found.get("_shards") or {}).get("failed"):
        raise TargetUnavailable(f"{path.partition('?')[0][1:]}: some shards did not answer")
    return found
