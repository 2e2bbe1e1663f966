"""What an index remembers of where it is fed from; of several workers at once see targets/."""

from __future__ import annotations

from typing import Any

import pytest
from elasticsearch_lab import handler
from servers.search_node import SearchNode

from handlers import Batch
from handlers.elasticsearch.mapping import ORIGIN_FIELD
from handlers.testing import make_batch
from handlers.versioned.late_rows import RowMoved
from handlers.versioned.memory import Unfit


def batch(database: str, name: str, **more: Any) -> Batch:
    types = {"id": "int", "name": "varchar(20)"}
    return make_batch(
        f"{database}.orders", [{"id": 1, "name": name}], key="id", types=types, topic="cdc", **more
    )


def names(node: SearchNode, database: str) -> list[str]:
    return [one["name"] for one in node.documents(f"{database}.orders").values()]


def copy_without_mapping(node: SearchNode, index: str) -> None:
    """In the index's place: its documents, with their versions."""
    node.call("POST", f"/{index}/_refresh")
    hits = node.call("POST", f"/{index}/_search", {"version": True})["hits"]["hits"]
    node.remove(index)
    node.call("PUT", f"/{index}", {"mappings": {"properties": {"_binlane": ORIGIN_FIELD}}})
    for hit in hits:
        path = f"/{index}/_doc/{hit['_id']}?version={hit['_version']}&version_type=external"
        node.call("PUT", path, hit["_source"])


def test_an_index_that_has_forgotten_its_epochs_is_a_fault_until_one_is_begun(
    search_node: SearchNode, database: str
) -> None:
    """As a copy by _reindex has, which keeps the documents' versions and not the mapping."""
    later = batch(database, "later", offset=7, topic_id="B")
    with handler(search_node) as it:
        it.handle(batch(database, "former", offset=900, topic_id="A"))
        it.handle(batch(database, "anew", offset=0, topic_id="B"))
        copy_without_mapping(search_node, f"{database}.orders")
        for _ in range(2):
            with pytest.raises(RowMoved, match=r"later epoch than any that .* remembers.*option epoch: 2"):
                it.handle(later)
    with handler(search_node, epoch=2) as it:
        it.handle(later)
    assert names(search_node, database) == ["later"]


def test_a_memory_that_somebody_has_made_is_a_fault(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, "a"))
        others = {"memory_9": {"type": "keyword", "null_value": "ours"}}
        mapping = {"properties": {"_binlane": {"properties": others}}}
        search_node.call("PUT", f"/{database}.orders/_mapping", mapping)
        with pytest.raises(Unfit, match="memory_9 remembers cannot be read"):
            it.handle(batch(database, "b", offset=1))


def test_an_index_with_as_many_fields_as_it_may_have_remembers_a_new_topic(
    search_node: SearchNode, database: str
) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, "a", topic_id="A", offset=9))
        limit = {"index.mapping.total_fields.limit": 7}
        search_node.call("PUT", f"/{database}.orders/_settings", limit)
        it.handle(batch(database, "b", topic_id="B"))
    assert names(search_node, database) == ["b"]
