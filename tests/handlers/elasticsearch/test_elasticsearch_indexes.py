"""Indexes that others have made, and what a table cannot do with them."""

from __future__ import annotations

from typing import Any

import pytest
from elasticsearch_lab import handler
from servers.search_node import SearchNode

from handlers import Batch
from handlers.elasticsearch.index import index_of
from handlers.failures import UnfitPlace
from handlers.testing import make_batch
from handlers.versioned.row_states import RowMoved
from handlers.versioned.versions import Unfit
from worker.column_rules.applying import bring_under
from worker.configuration import Configuration

TYPES = {"id": "int", "name": "varchar(9)", "note": "text"}
ROW = {"id": 1, "name": "a", "note": "hello world"}


def batch(table: str, *changes: dict[str, Any], offset: int = 0, key: Any = "id") -> Batch:
    return make_batch(table, changes, key=key, types=TYPES, offset=offset)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"mappings": {"_routing": {"required": True}}}, "requires a routing"),
        ({"settings": {"index.blocks.write": True}}, "cluster_block_exception"),
        ({"settings": {"index.default_pipeline": "lost"}}, r"pipeline with id \[lost\] does not exist"),
        ({"aliases": {"ALIAS": {"filter": {"term": {"name": "a"}}}}}, "an alias with a filter"),
        ({"aliases": {"ALIAS": {"is_write_index": False}}}, "accepts no writes"),
    ],
)
def test_an_index_that_takes_no_row_is_waited_for_and_no_row_is_blamed(
    search_node: SearchNode, database: str, made: dict[str, Any], told: str
) -> None:
    table = f"{database}.t"
    name = table if "aliases" not in made else f"{database}-real"
    if "aliases" in made:
        made = {"aliases": {table: made["aliases"]["ALIAS"]}}
    search_node.call("PUT", f"/{name}", made)
    with handler(search_node) as it, pytest.raises(UnfitPlace, match=told) as caught:
        it.handle(batch(table, ROW))
    assert caught.value.others_go_on
    assert search_node.documents(name) == {}


def test_a_data_stream_is_no_index(search_node: SearchNode, database: str) -> None:
    table = f"{database}.t"
    search_node.call(
        "PUT", f"/_index_template/{database}", {"index_patterns": [f"{database}.*"], "data_stream": {}}
    )
    with handler(search_node) as it:
        with pytest.raises(Unfit, match="creates data streams only"):
            it.handle(batch(table, ROW))
        search_node.call("PUT", f"/_data_stream/{table}")
        with pytest.raises(Unfit, match="is a data stream"):
            it.handle(batch(table, ROW))


@pytest.mark.parametrize("source", [{"excludes": ["note"]}, {"includes": ["id"]}, {"enabled": False}])
def test_an_update_that_lacks_columns_is_not_written_where_they_cannot_be_read(
    search_node: SearchNode, database: str, source: dict[str, Any]
) -> None:
    table = f"{database}.t"
    mapping = {"_source": source, "properties": {"note": {"type": "text"}}}
    search_node.call("PUT", f"/{table}", {"mappings": mapping})
    with handler(search_node) as it:
        it.handle(batch(table, ROW))
        update = {
            "op": "update",
            "before": None,
            "after": {"id": 1, "name": "b"},
            "lacks": frozenset({"note"}),
        }
        with pytest.raises(Unfit, match="does not store the whole _source"):
            it.handle(batch(table, update, offset=5))
    search_node.call("POST", f"/{table}/_refresh")
    found = search_node.call("POST", f"/{table}/_search", {"query": {"match": {"note": "hello"}}})
    assert found["hits"]["total"]["value"] == 1


@pytest.mark.parametrize(("mode", "keeps"), [("stored", True), ("synthetic", False), ("disabled", False)])
def test_an_index_of_elasticsearch_8_says_what_it_keeps(mode: str, keeps: bool) -> None:
    assert index_of("t", {"mappings": {"_source": {"mode": mode}}}).keeps_source is keeps


def test_ids_of_another_key_are_not_taken_for_those_of_this_one(
    search_node: SearchNode, database: str
) -> None:
    """The row 5 of the former key would be replaced by the row 5 of the new one."""
    table = f"{database}.t"
    with handler(search_node) as it:
        it.handle(batch(table, {**ROW, "id": 5}))
        with pytest.raises(Unfit, match=r"have ids from id, .* is name: .* \(rename\)"):
            it.handle(batch(table, {**ROW, "name": "5"}, key="name", offset=5))
        it.handle(batch(table, {"op": "truncate", "sql": None, "before": None}, key=None, offset=6))
        assert search_node.documents(table) == {}


def test_a_renamed_key_goes_on_under_its_former_name(search_node: SearchNode, database: str) -> None:
    table, types = f"{database}.t", {"order_id": "int", "name": "varchar(9)", "note": "text"}
    kafka = {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["t"]}
    rule = {"match": table, "handlers": [{"type": "log"}], "columns": {"rename": {"order_id": "id"}}}
    with handler(search_node) as it:
        it.handle(batch(table, {**ROW, "id": 5}))
        row = {"order_id": 5, "name": "b", "note": "later"}
        later = make_batch(table, [row], key="order_id", types=types, offset=5)
        with pytest.raises(Unfit, match=r"have ids from id, .* is order_id: .* \(rename\)"):
            it.handle(later)
        [own] = Configuration.model_validate({"kafka": kafka, "tables": [rule]}).tables
        changes = list(later.changes)
        bring_under(own.row_rules, own.statement_rules, changes, 0, database=database, table="t")
        later.changes = changes
        it.handle(later)
    [(id_, found)] = search_node.documents(table).items()
    assert (id_, found["id"], found["name"], found["note"]) == ("5", 5, "b", "later")


def test_a_table_that_was_made_again_has_another_key(search_node: SearchNode, database: str) -> None:
    """And both come again after a crash."""
    table, truncate = f"{database}.t", {"op": "truncate", "sql": None, "before": None}
    with handler(search_node) as it:
        for _ in range(2):
            it.handle(batch(table, {**ROW, "id": 5}, {**ROW, "id": 6}))
            it.handle(batch(table, truncate, key=None, offset=5))
            it.handle(batch(table, {**ROW, "name": "5"}, key="name", offset=6))
        found = search_node.documents(table)
        assert {id_: one["name"] for id_, one in found.items()} == {"5": "5"}
        with pytest.raises(Unfit, match="have ids from name"):
            it.handle(batch(table, {**ROW, "id": 5}, offset=7))
        letter = batch(table, {**ROW, "id": 7}, offset=8)
        letter.replay_of = (letter.changes[0].topic, 0, 1)
        with pytest.raises(RowMoved, match="has another primary key"):
            it.handle(letter)
        it.handle(batch(table, {**ROW, "name": "6"}, key="name", offset=9))
