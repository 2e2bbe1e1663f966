"""Definitions of tables by their place in the source's log."""

from __future__ import annotations

import itertools
from threading import Thread

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from worker.formats.table_history import TableDefinition, TableHistory

FIRST = TableDefinition({"id": "int"}, ("id",))
SECOND = TableDefinition({"id": "bigint unsigned"}, ("id",))
THIRD = TableDefinition({"id": "bigint unsigned", "e": "enum('a','b')"}, None)


def find(history: TableHistory, *order: int) -> TableDefinition | None:
    return history.find("my", "shop", "orders", order)


def test_the_definition_that_counts_is_the_latest_at_or_before_the_place() -> None:
    history = TableHistory()
    history.learn("my", "shop", "orders", (1, 500), FIRST)
    history.learn("my", "shop", "orders", (2, 4), SECOND)
    assert find(history, 1, 499) is None
    assert find(history, 1, 500) is FIRST
    assert find(history, 1, 500, 3) is FIRST
    assert find(history, 1, 99_999) is FIRST
    assert find(history, 2, 4) is SECOND
    assert find(history, 7, 0) is SECOND


def test_an_empty_place_asks_for_the_latest() -> None:
    history = TableHistory()
    assert find(history) is None
    history.learn("my", "shop", "orders", (2, 4), SECOND)
    history.learn("my", "shop", "orders", (1, 500), FIRST)
    assert find(history) is SECOND


def test_streams_databases_and_tables_are_apart() -> None:
    history = TableHistory()
    history.learn("my", "shop", "orders", (1,), FIRST)
    assert history.find("other", "shop", "orders", (1,)) is None
    assert history.find("my", "crm", "orders", (1,)) is None
    assert history.find("my", "shop", "Orders", (1,)) is None


def test_a_dropped_table_has_no_definition_until_it_is_created_again() -> None:
    history = TableHistory()
    history.learn("my", "shop", "orders", (1,), FIRST)
    history.learn("my", "shop", "orders", (2,), None)
    history.learn("my", "shop", "orders", (3,), THIRD)
    assert [find(history, place) for place in (1, 2, 3)] == [FIRST, None, THIRD]


def test_of_several_at_one_place_the_last_learned_counts() -> None:
    """Debezium's snapshot: DROP TABLE IF EXISTS and CREATE TABLE have one position."""
    history = TableHistory()
    history.learn("my", "shop", "orders", (1,), None)
    history.learn("my", "shop", "orders", (1,), FIRST)
    assert find(history, 1) is FIRST


def test_learning_again_changes_nothing_even_in_between() -> None:
    history = TableHistory()
    lessons = [((1,), None), ((1,), FIRST), ((2,), SECOND), ((2,), None)]
    for order, definition in lessons:
        history.learn("my", "shop", "orders", order, definition)
    for order, definition in lessons:
        equal = definition and TableDefinition(dict(definition.types), definition.key_columns)
        history.learn("my", "shop", "orders", order, equal)
        assert find(history, 1) is FIRST
        assert find(history, 2) is None


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique=True, max_size=12),
    st.randoms(use_true_random=False),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
)
def test_the_order_of_learning_does_not_matter(places, random, asked) -> None:  # type: ignore[no-untyped-def]
    definitions = {place: TableDefinition({"id": f"int({n})"}, None) for n, place in enumerate(places)}
    shuffled = list(places)
    random.shuffle(shuffled)
    history = TableHistory()
    for place in shuffled:
        history.learn("my", "shop", "orders", place, definitions[place])
    before = [place for place in places if place <= asked]
    assert find(history, *asked) is (definitions[max(before)] if before else None)


def test_a_thread_that_learns_does_not_disturb_one_that_looks_up() -> None:
    history = TableHistory()
    history.learn("my", "shop", "orders", (0,), FIRST)
    found: list[TableDefinition | None] = []
    done = False

    def look_up() -> None:
        while not done:
            found.append(find(history, 0))

    reader = Thread(target=look_up, name="reader")
    reader.start()
    for place, definition in zip(range(2000, 0, -1), itertools.cycle((SECOND, None, THIRD)), strict=False):
        history.learn("my", "shop", "orders", (place,), definition)
    done = True
    reader.join()
    assert set(map(id, found)) == {id(FIRST)}


def test_a_definition_holds_until_the_next_place_where_something_was_learned() -> None:
    history = TableHistory()
    assert history.until("my", "shop", "orders", (1,)) is None
    history.learn("my", "shop", "orders", (1, 500), FIRST)
    history.learn("my", "shop", "orders", (2, 4), SECOND)
    assert history.until("my", "shop", "orders", (1, 499)) == (1, 500)
    assert history.until("my", "shop", "orders", (1, 500)) == (2, 4)
    assert history.until("my", "shop", "orders", (2, 4, 1)) is None


def test_the_version_grows_with_what_is_new() -> None:
    history = TableHistory()
    versions = [history.version]
    for place, definition in ((1, None), (1, FIRST), (1, FIRST), (1, None), (2, SECOND), (2, SECOND)):
        history.learn("my", "shop", "orders", (place,), definition)
        versions.append(history.version)
    assert versions == [0, 1, 2, 2, 2, 3, 3]


def test_a_place_before_all_definitions_is_told_once_for_each_table() -> None:
    history = TableHistory()
    history.learn("my", "shop", "orders", (7, 500), FIRST)
    with capture_logs() as logs:
        assert find(history, 1, 4) is None
        assert find(history, 1, 9) is None
        assert find(history, 7, 500) is FIRST
        assert history.find("my", "shop", "others", (1, 4)) is None
    assert [(one["event"], one["table"], one["place"]) for one in logs] == [
        ("definitions_begin_later", "shop.orders", (1, 4))
    ]
