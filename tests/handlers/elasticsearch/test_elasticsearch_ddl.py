"""What happens to whole tables, on a real OpenSearch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from servers.search_node import SearchNode
from structlog.testing import capture_logs

from handlers import Batch, Rejected
from handlers.elasticsearch import ElasticsearchHandler, indexes
from handlers.testing import make_batch, opened

TYPES = {"id": "bigint", "name": "varchar(40)"}


@contextmanager
def handler(node: SearchNode, **options: Any) -> Iterator[ElasticsearchHandler]:
    with opened(ElasticsearchHandler(url=node.url, **options), handles=lambda table: "kept" in table) as made:
        yield made


def rows(database: str, first: int, last: int, *, offset: int, table: str = "orders", **more: Any) -> Batch:
    changes = [
        {"after": {"id": number, "name": "a"}, "source_time_ms": offset} for number in range(first, last)
    ]
    return make_batch(
        f"{database}.{table}", changes, key="id", types=TYPES, topic="cdc", offset=offset, **more
    )


def statement(database: str, sql: str | None, *, offset: int, time: int = 0, topic: str = "cdc") -> Batch:
    change = {"sql": sql, "source_time_ms": time, "op": "truncate" if sql is None else "ddl"}
    return make_batch(f"{database}.orders", [change], topic=topic, offset=offset)


@pytest.mark.parametrize("sql", [None, "TRUNCATE TABLE orders"])
def test_a_truncate_removes_what_is_older_however_often_it_comes(
    search_node: SearchNode, database: str, sql: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "_REMOVED_AT_ONCE", 7)  # several rounds
    with handler(search_node) as it:
        it.handle(rows(database, 0, 20, offset=0))
        for _ in range(2):
            it.handle(statement(database, sql, offset=20))
            it.handle(rows(database, 3, 5, offset=21))
            assert sorted(search_node.documents(f"{database}.orders")) == ["3", "4"]
        it.handle(rows(database, 0, 20, offset=0))
    assert sorted(search_node.documents(f"{database}.orders")) == ["3", "4"], "what is late stays away"


def test_a_truncate_within_a_batch_has_its_place(search_node: SearchNode, database: str) -> None:
    changes = [{"after": {"id": 1}}, {"sql": None, "op": "truncate"}, {"after": {"id": 2}}]
    with handler(search_node) as it:
        it.handle(make_batch(f"{database}.orders", changes, key="id", types={"id": "bigint"}, topic="cdc"))
    assert sorted(search_node.documents(f"{database}.orders")) == ["2"]


def test_a_statement_that_is_not_followed_is_told(search_node: SearchNode, database: str) -> None:
    with handler(search_node) as it, capture_logs() as logs:
        it.handle(statement(database, "ALTER TABLE orders DROP COLUMN name", offset=1))
    (refused,) = (line for line in logs if line["event"] == "ddl_refused")
    assert "a dropped column stays" in refused["because"]


def test_of_other_partitions_a_truncate_removes_what_was_before_it(
    search_node: SearchNode, database: str
) -> None:
    with handler(search_node) as it:
        it.handle(rows(database, 0, 3, offset=1_000, partition=1))
        it.handle(rows(database, 3, 6, offset=2_000, partition=1))
        it.handle(statement(database, None, offset=5, time=1_500))
        it.handle(rows(database, 0, 3, offset=1_000, partition=1))
    assert sorted(search_node.documents(f"{database}.orders")) == ["3", "4", "5"]


def test_rows_that_come_back_after_a_statement_of_another_topic_are_there(
    search_node: SearchNode, database: str
) -> None:
    """Debezium's statements have a topic of their own, whose versions are of a later epoch."""
    with handler(search_node) as it:
        it.handle(rows(database, 0, 3, offset=1_000))
        it.handle(statement(database, "TRUNCATE TABLE orders", offset=5, time=1_500, topic="statements"))
        assert search_node.documents(f"{database}.orders") == {}
        it.handle(rows(database, 1, 3, offset=2_000))
        it.handle(rows(database, 0, 1, offset=1_000))
    assert sorted(search_node.documents(f"{database}.orders")) == ["1", "2"]


def test_what_is_kept_when_the_options_say_so(search_node: SearchNode, database: str) -> None:
    with handler(search_node, truncate=False) as it:
        it.handle(rows(database, 0, 2, offset=0))
        it.handle(statement(database, None, offset=2))
        it.handle(statement(database, "DROP TABLE orders", offset=3))
        it.handle(statement(database, "RENAME TABLE orders TO former", offset=4))
    assert sorted(search_node.documents(f"{database}.orders")) == ["0", "1"]
    with handler(search_node, drop_tables=True) as it:
        it.handle(statement(database, "DROP TABLE orders", offset=3))
    assert search_node.documents(f"{database}.orders") == {}


def test_a_statement_reaches_only_tables_of_this_handler(search_node: SearchNode, database: str) -> None:
    with handler(search_node, drop_tables=True) as it:
        for table in ("other", "kept"):
            it.handle(rows(database, 0, 2, offset=0, table=table))
        it.handle(statement(database, "DROP TABLE other, kept, never_made", offset=9))
    assert len(search_node.documents(f"{database}.other")) == 2
    assert search_node.documents(f"{database}.kept") == {}


def test_a_statement_of_another_table_leaves_an_index_to_its_own(
    search_node: SearchNode, database: str
) -> None:
    """Debezium has a topic for each table, and one for statements: none of them is known to all indexes."""
    with handler(search_node, drop_tables=True) as it:
        it.handle(rows(database, 0, 2, offset=0, table="kept"))
        it.handle(statement(database, "DROP TABLE orders, kept", offset=9, time=5, topic="statements"))
        it.handle(rows(database, 2, 3, offset=3, table="kept"))
    assert sorted(search_node.documents(f"{database}.kept")) == ["2"]


def test_a_new_column_has_a_field_and_one_that_cannot_be_read_is_rejected(
    search_node: SearchNode, database: str
) -> None:
    with handler(search_node) as it:
        it.handle(rows(database, 0, 1, offset=0))
        it.handle(statement(database, "ALTER TABLE orders ADD COLUMN n int", offset=1))
        added = {"id": 1, "name": "b", "n": 5}
        it.handle(
            make_batch(
                f"{database}.orders", [added], key="id", types={**TYPES, "n": "int"}, topic="cdc", offset=2
            )
        )
        with pytest.raises(Rejected, match="cannot parse DDL"):
            it.handle(statement(database, "DROP TABLE (", offset=3))
    found = search_node.call("GET", f"/{database}.orders/_mapping/field/n")[f"{database}.orders"]
    assert found["mappings"]["n"]["mapping"]["n"]["type"] == "long"
    assert search_node.documents(f"{database}.orders")["0"] == {"id": 0, "name": "a"}
