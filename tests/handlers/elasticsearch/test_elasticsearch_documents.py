"""Rows as documents of a real OpenSearch: what is there after each change, and after what comes late."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from elasticsearch_lab import handler
from servers.search_node import SearchNode

from handlers import Batch, Rejected
from handlers.elasticsearch.client import Item, write
from handlers.elasticsearch.index import document_id
from handlers.elasticsearch.indexes import Index, Indexes
from handlers.http.client import HttpClient
from handlers.progress import FormerTopic
from handlers.testing import make_batch
from handlers.versioned.row_states import RowMoved
from handlers.versioned.versions import Unfit

LONG = "12345678901234567890.0123456789"
TYPES = {"id": "bigint", "name": "varchar(40)", "total": "decimal(10,2)"}


def batch(database: str, *changes: Any, types: Any = TYPES, key: Any = "id", **more: Any) -> Batch:
    return make_batch(f"{database}.orders", changes, key=key, types=types, topic="cdc", **more)


def row(number: int, name: str, total: str = "1.50") -> dict[str, Any]:
    return {"id": number, "name": name, "total": Decimal(total)}


def delete(number: int) -> dict[str, Any]:
    return {"before": {"id": number}, "op": "delete"}


def update(number: int, name: str) -> dict[str, Any]:
    return {"before": row(number, "before"), "after": row(number, name)}


def names(node: SearchNode, database: str) -> dict[str, Any]:
    return {key: one.get("name") for key, one in node.documents(f"{database}.orders").items()}


def test_a_document_for_each_row(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a"), row(2, "b"), update(1, "c"), row(3, "d"), delete(2)))
        it.handle(batch(database, delete(3), row(4, "e"), offset=5))
    assert search_node.documents(f"{database}.orders") == {
        "1": {"id": 1, "name": "c", "total": 1.5},
        "4": {"id": 4, "name": "e", "total": 1.5},
    }


def test_what_comes_late_never_wins(search_node: SearchNode, database: str) -> None:
    """A process that was frozen wakes up, and sends what it held."""
    with handler(search_node) as it, handler(search_node) as frozen:
        it.handle(batch(database, row(1, "old"), row(2, "gone"), offset=0))
        it.handle(batch(database, update(1, "new"), delete(2), offset=2))
        frozen.handle(batch(database, row(1, "old"), row(2, "gone"), offset=0))
        frozen.handle(batch(database, delete(1), offset=1))
    assert names(search_node, database) == {"1": "new"}


def test_rows_of_one_record_are_in_order(search_node: SearchNode, database: str) -> None:
    first = {"after": row(1, "first"), "offset": 7, "index": 0}
    second = {**update(1, "second"), "offset": 7, "index": 1}
    with handler(search_node) as it:
        it.handle(batch(database, second))
        it.handle(batch(database, first))
    assert names(search_node, database) == {"1": "second"}


def test_an_index_remembers_deletes_longer_than_its_default(search_node: SearchNode, database: str) -> None:
    with handler(search_node, keep_deletes="3h") as it:
        it.handle(batch(database, row(1, "a")))
    found = search_node.call("GET", f"/{database}.orders/_settings?flat_settings=true")
    settings = found[f"{database}.orders"]["settings"]
    assert settings["index.gc_deletes"] == "10800000ms"
    assert settings["index.mapping.coerce"] == "false"


def test_a_topic_made_anew_begins_a_later_epoch(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "former"), row(2, "former"), offset=900, topic_id="A"))
        it.handle(batch(database, update(1, "anew"), delete(2), offset=0, topic_id="B"))
    with handler(search_node) as late, pytest.raises(FormerTopic, match=r'topic_again: {"A": \["B"\]}'):
        late.handle(batch(database, update(1, "late"), offset=950, topic_id="A"))
    with handler(search_node, topic_again={"A": ["B"]}) as again:
        again.handle(batch(database, update(1, "again"), offset=10, topic_id="A"))
        with pytest.raises(FormerTopic):
            again.handle(batch(database, update(1, "late"), offset=950, topic_id="B"))
    assert names(search_node, database) == {"1": "again"}


def test_a_replayed_dead_letter_beats_nothing_newer(search_node: SearchNode, database: str) -> None:
    letter = make_batch(
        f"{database}.orders", [update(1, "letter")], key="id", types=TYPES, topic="cdc.dead", offset=5_000
    )
    letter.replay_of = ("cdc", 0, 3)
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "older"), offset=2))
        it.handle(letter)
        assert names(search_node, database) == {"1": "letter"}
        it.handle(batch(database, update(1, "newer"), offset=4))
        it.handle(letter)
        assert names(search_node, database) == {"1": "newer"}
        it.handle(batch(database, delete(1), offset=5))
        it.handle(letter)
    assert names(search_node, database) == {}


def test_a_row_that_changed_its_partition_is_a_fault_until_an_epoch_is_begun(
    search_node: SearchNode, database: str
) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "of 0"), offset=900, partition=0))
        with pytest.raises(RowMoved, match=r"the document 1 of .* is of cdc\[0\].*option epoch: 1"):
            it.handle(batch(database, update(1, "of 1"), offset=3, partition=1))
    with handler(search_node, epoch=1) as it:
        it.handle(batch(database, update(1, "of 1"), offset=3, partition=1))
    assert names(search_node, database) == {"1": "of 1"}


def test_a_row_that_comes_back_to_a_former_topic_is_a_fault_until_an_epoch_is_begun(
    search_node: SearchNode, database: str
) -> None:
    """Each topic that an index is fed from has an epoch, and the first one the lowest."""

    def of(topic: str, name: str, offset: int) -> Batch:
        return make_batch(
            f"{database}.orders", [row(1, name)], key="id", types=TYPES, topic=topic, offset=offset
        )

    with handler(search_node) as it:
        it.handle(of("former", "a", 5))
        it.handle(of("other", "b", 50))
        with pytest.raises(RowMoved, match=r"is of other\[0\].*option epoch: 2"):
            it.handle(of("former", "c", 6))
    with handler(search_node, epoch=2) as it:
        it.handle(of("former", "c", 6))
    assert names(search_node, database) == {"1": "c"}


def test_an_epoch_that_is_taken_back_is_a_fault(search_node: SearchNode, database: str) -> None:
    """Also of a worker that does not have the new options yet: all that it has would be passed over."""
    with handler(search_node) as former, handler(search_node, epoch=1) as it:
        former.handle(batch(database, row(1, "a"), offset=4))
        it.handle(batch(database, update(1, "b"), offset=4))
        with pytest.raises(Unfit, match="with the option epoch: 1, but it is 0 here"):
            former.handle(batch(database, update(1, "c"), offset=5))
        it.handle(batch(database, update(1, "c"), offset=5))
    assert names(search_node, database) == {"1": "c"}


def test_what_others_have_written_with_higher_versions_is_told(
    search_node: SearchNode, database: str
) -> None:
    high = 1 << 60
    search_node.call("PUT", f"/{database}.orders/_doc/1?version={high}&version_type=external", {"id": 1})
    with handler(search_node) as it, pytest.raises(RowMoved, match="was not written by binlane"):
        it.handle(batch(database, row(1, "a")))


def test_columns_that_were_not_sent_stay(search_node: SearchNode, database: str) -> None:
    part = {"before": {"id": 1}, "after": {"id": 1, "name": "b"}}
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a", "2.25")))
        it.handle(batch(database, part, offset=1))
        it.handle(
            batch(
                database,
                row(2, "a", "3.25"),
                {"before": {"id": 2}, "after": {"id": 2, "name": "c"}},
                offset=2,
            )
        )
    assert search_node.documents(f"{database}.orders") == {
        "1": {"id": 1, "name": "b", "total": 2.25},
        "2": {"id": 2, "name": "c", "total": 3.25},
    }


def test_columns_that_were_not_sent_keep_all_their_digits(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a", "9061.00")))
        it.handle(batch(database, {"before": {"id": 1}, "after": {"id": 1, "name": "b"}}, offset=1))
    found = search_node.documents(f"{database}.orders", str)
    assert found == {"1": {"id": 1, "name": "b", "total": "9061.00"}}


def test_what_is_read_of_large_documents_is_bounded(
    search_node: SearchNode, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    request = HttpClient.request

    def measured(*args: Any, **more: Any) -> Any:
        answer = request(*args, **more)
        sizes.append(len(answer.content))
        return answer

    parts = [{"before": {"id": one}, "after": {"id": one, "total": Decimal("2.50")}} for one in range(300)]
    with handler(search_node, max_bytes="64KiB") as it:
        it.handle(batch(database, *(row(number, "x" * 4_000) for number in range(300))))
        monkeypatch.setattr(HttpClient, "request", measured)
        it.handle(batch(database, *parts, offset=300))
    monkeypatch.undo()
    assert max(sizes) <= 64 * 1024
    assert set(names(search_node, database).values()) == {"x" * 4_000}
    assert {one["total"] for one in search_node.documents(f"{database}.orders").values()} == {2.5}


def test_a_key_that_changes_leaves_one_document(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a")))
        moved = [{**delete(1), "offset": 1, "index": 0}, {"after": row(9, "a"), "offset": 1, "index": 1}]
        it.handle(batch(database, *moved))
        it.handle(batch(database, *moved))
    assert names(search_node, database) == {"9": "a"}


def test_ids_tell_rows_apart() -> None:
    both = ("a", "b")
    assert document_id({"a": "x:y", "b": "z"}, both) != document_id({"a": "x", "b": "y:z"}, both)
    assert document_id({"a": "é" * 256}, ("a",)) == "é" * 256
    long = {document_id({"a": "x" * 513 + end}, ("a",)) for end in ("", "1", "2")}
    assert len(long) == 3
    assert all(one.startswith("sha256-") and len(one) == 71 for one in long)
    forged = next(iter(long))
    assert document_id({"a": forged}, ("a",)) != forged
    assert document_id({"a": ""}, ("a",)).startswith("sha256-")


def test_values_are_kept_as_the_source_has_them(search_node: SearchNode, database: str) -> None:
    columns: dict[str, tuple[str, Any, str, Any]] = {
        "big": ("bigint", -(2**63), "long", -(2**63)),
        "huge": ("bigint unsigned", 2**64 - 1, "unsigned_long", 2**64 - 1),
        "price": ("decimal(15,4)", Decimal("12345678901.2345"), "double", 12345678901.2345),
        "long": ("decimal(30,10)", Decimal(LONG), "keyword", LONG),
        "ratio": ("double", 0.1, "double", 0.1),
        "flag": ("boolean", True, "boolean", True),
        "day": ("date", date(1582, 1, 1), "date", "1582-01-01"),
        "at": ("datetime(6)", datetime(1969, 1, 1, 1, 1, 1, 123456), "date", "1969-01-01T01:01:01.123456"),
        "zoned": ("timestamp", datetime(2025, 1, 1, tzinfo=UTC), "date", "2025-01-01T00:00:00+00:00"),
        "note": ("text", "some words", "text", "some words"),
        "kind": ("enum('a','b')", "a", "keyword", "a"),
        "data": ("json", '{"a": 1}', "object", '{"a": 1}'),
        "bytes": ("varbinary(9)", b"\0\xff", "binary", "AP8="),
        "none": ("int", None, "long", None),
    }  # fmt: skip
    types = {"id": "int", **{name: one[0] for name, one in columns.items()}}
    whole = {"id": 1, **{name: one[1] for name, one in columns.items()}}
    with handler(search_node) as it:
        it.handle(batch(database, whole, types=types))
    found = search_node.documents(f"{database}.orders")["1"]
    assert found == {"id": 1, **{name: one[3] for name, one in columns.items()}}
    mapping = search_node.call("GET", f"/{database}.orders/_mapping")[f"{database}.orders"]["mappings"]
    kinds = {name: one.get("type") for name, one in mapping["properties"].items()}
    assert kinds == {"_binlane": None, "id": "long", **{name: one[2] for name, one in columns.items()}}
    assert mapping["dynamic"] == "false"
    exact = {"query": {"bool": {"filter": [
        {"term": {"huge": 2**64 - 1}}, {"term": {"price": "12345678901.2345"}},
        {"term": {"long": LONG}}, {"match": {"note": "words"}},
    ]}}}  # fmt: skip
    assert search_node.call("POST", f"/{database}.orders/_search", exact)["hits"]["total"]["value"] == 1


def test_arrays_and_maps_of_postgresql_come_after_null(search_node: SearchNode, database: str) -> None:
    types = {"id": "int", "tags": "json"}
    values = [None, {"a": "1", "b": None}, [1, 2], [b"\0"], '{"a": 1}']
    with handler(search_node) as it:
        for number, value in enumerate(values):
            it.handle(batch(database, {"id": number, "tags": value}, types=types, offset=number))
    found = search_node.documents(f"{database}.orders")
    kept = [None, {"a": "1", "b": None}, [1, 2], [{"base64": "AA=="}], '{"a": 1}']
    assert [found[str(number)]["tags"] for number in range(len(values))] == kept


def test_what_no_field_takes_is_rejected_alone(search_node: SearchNode, database: str) -> None:
    retyped = {**TYPES, "id": "bigint", "total": "varchar(20)"}
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a")))
        rows = [{**row(number, "b"), "total": "a lot" if number == 4 else None} for number in (2, 3, 4, 5)]
        whole = batch(database, *rows, types=retyped, offset=1)
        with pytest.raises(
            Rejected, match=r"offset 3: .* type of the source's column changed.*_reindex"
        ) as told:
            it.handle(whole)
        assert told.value.at == 2
        # As the worker goes on: what is before it, then what is after it.
        for part in (slice(0, 2), slice(3, 4)):
            it.handle(Batch(whole.table, whole.changes[part], database=database, name="orders"))
    assert sorted(names(search_node, database)) == ["1", "2", "3", "5"]


def test_of_several_updates_of_a_row_the_right_one_is_rejected(
    search_node: SearchNode, database: str
) -> None:
    """Together they make one document, and the cluster cannot tell which of them is to blame."""
    updates = [
        {"before": {"id": 1}, "after": {"id": 1, **one}}
        for one in ({"name": "b"}, {"total": "a lot"}, {"name": "c"})
    ]
    whole = batch(database, *updates, types={**TYPES, "total": "varchar(20)"}, offset=1)
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a")))
        with pytest.raises(Rejected) as told:
            it.handle(whole)
        assert told.value.at is None, "the worker looks for it"
        for place, is_refused in enumerate((False, True, False)):
            part = Batch(whole.table, whole.changes[place : place + 1], database=database, name="orders")
            with pytest.raises(Rejected) if is_refused else nullcontext():
                it.handle(part)
    assert search_node.documents(f"{database}.orders") == {"1": {"id": 1, "name": "c", "total": 1.5}}


def test_templates_are_respected(search_node: SearchNode, database: str) -> None:
    template = {
        "index_patterns": [f"{database}.*"],
        "template": {
            "settings": {"number_of_shards": 2},
            "mappings": {
                "_meta": {"owner": "us"},
                "dynamic": "strict",
                "properties": {"name": {"type": "text", "analyzer": "simple"}},
            },
        },
    }
    search_node.call("PUT", f"/_index_template/{database}", template)
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "Words here")))
    index = search_node.call("GET", f"/{database}.orders")[f"{database}.orders"]
    assert index["settings"]["index"]["number_of_shards"] == "2"
    assert index["mappings"]["dynamic"] == "strict"
    assert index["mappings"]["_meta"] == {"owner": "us"}
    assert index["mappings"]["properties"]["name"] == {"type": "text", "analyzer": "simple"}
    assert index["mappings"]["properties"]["total"] == {"type": "double"}


def test_two_tables_never_share_an_index(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a")))
        with pytest.raises(Unfit, match=f"has the rows of {database}.orders"):
            it.handle(make_batch(f"{database}.Orders", [row(1, "b")], key="id", types=TYPES))
        with pytest.raises(Unfit, match="is not a valid index name"):
            it.handle(make_batch(f"{database}.a b", [row(1, "b")], key="id", types=TYPES))
    assert names(search_node, database) == {"1": "a"}


def test_an_index_is_of_one_table_from_its_beginning(
    search_node: SearchNode, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lanes, or two workers, meet the first rows of both tables at once."""
    find, other = Indexes.find, make_batch(f"{database}.Orders", [row(2, "b")], key="id", types=TYPES)

    def met(self: Indexes, *table: str) -> Index | None:
        found = find(self, *table)
        if found is not None and table[1] == "orders":
            monkeypatch.setattr(Indexes, "find", find)
            with pytest.raises(Unfit, match="has the rows of"):
                it.handle(other)
        return found

    with handler(search_node) as it:
        monkeypatch.setattr(Indexes, "find", met)
        it.handle(batch(database, row(1, "a")))
    assert Indexes.find is find
    assert names(search_node, database) == {"1": "a"}


def test_an_index_that_somebody_removed_is_made_anew_with_its_mapping(
    search_node: SearchNode, database: str
) -> None:
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a")))
        search_node.call("DELETE", f"/{database}.orders")
        it.handle(batch(database, row(2, "b"), offset=1))
        properties = search_node.call("GET", f"/{database}.orders/_mapping")[f"{database}.orders"]
        assert properties["mappings"]["properties"]["name"]["type"] == "keyword"
    is_told = pytest.raises(Unfit, match=r"index hand-orders .* does not exist, and create is false")
    with handler(search_node, create=False, index="hand-{table}") as it, is_told:
        it.handle(batch(database, row(1, "a")))


def test_an_index_that_the_cluster_made_by_itself_is_not_written_to(
    search_node: SearchNode, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted just before a write, which makes it anew: with guessed fields."""
    with handler(search_node) as it:
        it.handle(batch(database, row(1, "a")))

        def write_late(client: Any, path: str, items: Any, most: int) -> list[Item]:
            search_node.call("DELETE", f"/{database}.orders")
            return write(client, path, items, most)

        monkeypatch.setattr("handlers.elasticsearch.indexes.write", write_late)
        it.handle(batch(database, row(2, "b"), offset=1))
        monkeypatch.undo()
        with pytest.raises(Unfit, match="created this index itself"):
            it.handle(batch(database, row(3, "c"), offset=2))
        search_node.call("DELETE", f"/{database}.orders")
        it.handle(batch(database, row(3, "c"), offset=2))
    assert names(search_node, database) == {"3": "c"}


def test_requests_are_bounded(search_node: SearchNode, database: str) -> None:
    many = [row(number, "x" * 1_000) for number in range(200)]
    with handler(search_node, max_bytes="16KiB") as it:
        it.handle(batch(database, *many))
    assert len(search_node.documents(f"{database}.orders")) == 200
    assert json.dumps(search_node.documents(f"{database}.orders")["7"]) == json.dumps(
        {"id": 7, "name": "x" * 1_000, "total": 1.5}
    )
