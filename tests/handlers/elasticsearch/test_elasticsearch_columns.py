"""Columns as fields of a real OpenSearch: their names, their number, and an index that is half made."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from elasticsearch_lab import handler
from servers.search_node import SearchNode

from handlers import Batch, HandlerContext
from handlers.elasticsearch.client import ElasticsearchOptions, SearchClient
from handlers.elasticsearch.indexes import Indexes
from handlers.testing import make_batch
from handlers.versioned.versions import UnfitColumn

ROW = {"id": 1, "name": "a"}


def batch(database: str, row: dict[str, Any], **types: str) -> Batch:
    told = {"id": "bigint", "name": "varchar(40)", **types}
    return make_batch(f"{database}.orders", [row], key="id", types=told, topic="cdc")


@pytest.mark.parametrize(
    ("column", "because"),
    [
        ("_id", "the cluster reserves that name"),
        ("_source", "the cluster reserves that name"),
        ("", "a part between its dots is empty"),
        (".x", "a part between its dots is empty"),
        ("a..b", "a part between its dots is empty"),
        ("name.first", "a part of name"),
    ],
)
def test_a_column_that_no_document_can_have_is_told_with_what_to_do(
    search_node: SearchNode, database: str, column: str, because: str
) -> None:
    with handler(search_node) as it, pytest.raises(UnfitColumn, match=f"{because}.*columns: exclude"):
        it.handle(batch(database, {**ROW, column: "x"}, **{column: "text"}))


def test_columns_with_dots_are_mapped_once(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, {**ROW, "b.c": 1}, **{"b.c": "int"}))
        context = HandlerContext(worker="w", handler="h", folder=Path())
        with closing(Indexes(ElasticsearchOptions(url=search_node.url), context)) as indexes:
            found = indexes.find(database, "orders")
    assert found is not None
    assert found.columns["b.c"] == {"type": "long"}


def test_a_table_has_more_columns_than_an_index_has_fields_by_default(
    search_node: SearchNode, database: str
) -> None:
    wide = {"id": 1, **{f"c{at}": at for at in range(1_500)}}
    with handler(search_node) as it:
        it.handle(batch(database, wide, **dict.fromkeys(wide, "int")))
    assert search_node.documents(f"{database}.orders")["1"] == wide


def test_an_index_that_is_half_made_is_finished_by_whoever_finds_it(
    search_node: SearchNode, database: str
) -> None:
    options = ElasticsearchOptions(url=search_node.url)
    client = SearchClient(options, Path(), 1)
    path = f"/{database}.orders"
    client.request("PUT", path, {"mappings": {"_meta": {"binlane_makes_it": True, "ours": 1}}})
    with handler(search_node) as it:
        it.handle(batch(database, {**ROW, "late": None}))
    found = client.request("GET", f"{path}/_mapping").body[f"{database}.orders"]["mappings"]
    client.close()
    assert found["dynamic"] == "false"
    assert found["_meta"] == {"ours": 1}


def test_a_strict_index_takes_rows_in_which_a_column_without_a_type_is_null_at_first(
    search_node: SearchNode, database: str
) -> None:
    template = {
        "index_patterns": [f"{database}.*"],
        "template": {"mappings": {"dynamic": "strict", "properties": {"id": {"type": "long"}}}},
    }
    search_node.call("PUT", f"/_index_template/{database}", template)
    rows = [{"id": 1, "name": None}, {"id": 2, "name": "b"}, {"id": 3, "name": None}]
    with handler(search_node) as it:
        for at, row in enumerate(rows):
            it.handle(make_batch(f"{database}.orders", [row], key="id", offset=at))
    assert search_node.documents(f"{database}.orders") == {"1": {"id": 1}, "2": rows[1], "3": rows[2]}


def test_an_object_of_a_template_takes_a_column_of_maps(search_node: SearchNode, database: str) -> None:
    attrs = {"properties": {"color": {"type": "keyword"}}}
    fields = {"id": {"type": "long"}, "name": {"type": "text"}, "attrs": attrs}
    template = {
        "index_patterns": [f"{database}.*"],
        "template": {"mappings": {"dynamic": "strict", "properties": fields}},
    }
    search_node.call("PUT", f"/_index_template/{database}", template)
    row = {"id": 1, "name": "a", "attrs": {"color": "red"}}
    update = {"op": "update", "before": None, "after": {"id": 1, "attrs": None}, "lacks": frozenset({"name"})}
    types = {"id": "int", "name": "text", "attrs": "hstore"}
    with handler(search_node) as it:
        for at, (change, after) in enumerate(((row, row), (update, {**row, "attrs": None}))):
            it.handle(make_batch(f"{database}.orders", [change], key="id", types=types, offset=at))
            assert search_node.documents(f"{database}.orders") == {"1": after}
    found = search_node.call("GET", f"/{database}.orders/_mapping")[f"{database}.orders"]["mappings"]
    assert found["properties"]["attrs"] == attrs
