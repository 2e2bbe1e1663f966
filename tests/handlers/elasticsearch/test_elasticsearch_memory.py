"""What an index remembers of where it is fed from; of several workers at once see targets/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from elasticsearch_lab import handler
from servers.search_node import SearchNode

from handlers import Batch
from handlers.elasticsearch.mapping import ORIGIN_FIELD
from handlers.testing import make_batch
from handlers.versioned.row_states import RowMoved
from handlers.versioned.versions import Unfit


def batch(database: str, name: str, **more: Any) -> Batch:
    types = {"id": "int", "name": "varchar(20)"}
    return make_batch(
        f"{database}.orders", [{"id": 1, "name": name}], key="id", types=types, topic="cdc", **more
    )


def names(node: SearchNode, database: str) -> list[str]:
    return [one["name"] for one in node.documents(f"{database}.orders").values()]


def copy_without_mapping(
    node: SearchNode, index: str, properties: Mapping[str, Any], *, dynamic: bool = True
) -> None:
    """In the index's place: its documents, with their versions, in an index with these fields."""
    node.call("POST", f"/{index}/_refresh")
    hits = node.call("POST", f"/{index}/_search", {"version": True})["hits"]["hits"]
    node.remove(index)
    node.call("PUT", f"/{index}", {"mappings": {"dynamic": dynamic, "properties": properties}})
    for hit in hits:
        path = f"/{index}/_doc/{hit['_id']}?version={hit['_version']}&version_type=external"
        node.call("PUT", path, hit["_source"])


def test_an_index_that_has_forgotten_its_topics_is_a_fault_until_an_epoch_is_begun(
    search_node: SearchNode, database: str
) -> None:
    """As a copy by _reindex has, which keeps the documents' versions and not the mapping."""
    later = batch(database, "later", offset=0, topic_id="C")
    with handler(search_node) as it:
        it.handle(batch(database, "former", offset=900, topic_id="A"))
        it.handle(batch(database, "anew", offset=7, topic_id="B"))
        copy_without_mapping(search_node, f"{database}.orders", {"_binlane": ORIGIN_FIELD})
        for one in (later, batch(database, "again", offset=8, topic_id="B")):
            with pytest.raises(Unfit, match=r"not the topics they came from .*option epoch: 2"):
                it.handle(one)
    with handler(search_node, epoch=2) as it:
        it.handle(later)
    assert names(search_node, database) == ["later"]


def test_a_dead_letter_does_not_lose_unheard_to_the_option_epoch(
    search_node: SearchNode, database: str
) -> None:
    letter = batch(database, "letter", offset=5_000)
    letter.replay_of = ("cdc", 0, 12)
    with handler(search_node, epoch=1) as it:
        it.handle(batch(database, "old", offset=1))
        with pytest.raises(RowMoved, match="was written with the option epoch"):
            it.handle(letter)
    assert names(search_node, database) == ["old"]


def test_an_index_that_remembers_fewer_epochs_than_it_holds_is_a_fault(
    search_node: SearchNode, database: str
) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, "former", offset=900, topic_id="A"))
        memory = search_node.call("GET", f"/{database}.orders/_mapping")[f"{database}.orders"]["mappings"]
        it.handle(batch(database, "anew", offset=0, topic_id="B"))
        copy_without_mapping(search_node, f"{database}.orders", memory["properties"])
        with pytest.raises(RowMoved, match=r"later epoch than any that .* remembers.*option epoch: 2"):
            it.handle(batch(database, "again", offset=8, topic_id="A"))


@pytest.mark.parametrize("is_mapped_later", [False, True])
def test_documents_that_no_truncate_would_find_are_a_fault(
    search_node: SearchNode, database: str, is_mapped_later: bool
) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, "a"))
        copy_without_mapping(search_node, f"{database}.orders", {}, dynamic=False)
        if is_mapped_later:
            mapping = {"properties": {"_binlane": ORIGIN_FIELD}}
            search_node.call("PUT", f"/{database}.orders/_mapping", mapping)
        with pytest.raises(Unfit, match="a TRUNCATE would not find"):
            it.handle(batch(database, "b", offset=1))
    assert names(search_node, database) == ["a"]


def test_a_memory_that_somebody_has_made_is_a_fault(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, "a"))
        others = {"memory_9": {"type": "keyword", "null_value": "ours"}}
        mapping = {"properties": {"_binlane": {"properties": others}}}
        search_node.call("PUT", f"/{database}.orders/_mapping", mapping)
        with pytest.raises(Unfit, match="memory_9 cannot be read"):
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
