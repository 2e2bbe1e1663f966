"""A real server's stream through real Canal, replayed, against the server's own rows at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from captured import records
from memory_replica import ALTERED, VANISHED, Replica, decode, differences
from truth_rows import Row, same

from handlers import Change
from worker.formats import registry


@pytest.fixture(scope="module")
def replica() -> Replica:
    return Replica().play(registry.get("canal"), records("canal"))


# What Canal writes otherwise: latin1 text read as UTF-8, a backtick in a name doubled, a double in JSON.
WRITTEN_BY_CANAL = {
    ("shop.all_types", "c_latin"): 78,
    ("shop.order.items", "q`tick"): 2,
    ("shop.order.items", "q``tick"): 2,
    ("shop.all_types", "c_json"): 6,
}


def test_a_replica_differs_from_its_source_only_where_the_stream_does_not_say_it(replica: Replica) -> None:
    assert differences(replica) == ALTERED | VANISHED | WRITTEN_BY_CANAL


def test_only_statements_about_databases_are_passed_over(replica: Replica) -> None:
    assert replica.skipped == {("database_ddl", 1)}


def every_change() -> Iterator[Change]:
    format_ = registry.get("canal")
    for record in records("canal"):
        yield from decode(format_, record)


def test_every_message_of_the_stream_is_a_change_or_says_why_not() -> None:
    operations = Counter(change.op for change in every_change())
    # 1,121 rows inserted, 530 updated, 84 deleted; twelve of the updates gave their row another key.
    assert operations == {
        "insert": 1121 + 12,
        "update": 530 - 12,
        "delete": 84 + 12,
        "ddl": 65,
        "truncate": 2,
    }


def test_before_and_after_of_an_update_differ_in_the_columns_of_old_alone() -> None:
    olds: list[Row] = []
    for record in records("canal"):
        value = json.loads(record.value() or b"")
        key = set(value["pkNames"] or ())
        if value["type"] == "UPDATE":
            olds += [old for old in value["old"] if key.isdisjoint(old)]
    updates = [change for change in every_change() if change.op == "update"]
    assert len(updates) == len(olds)
    for change, old in zip(updates, olds, strict=True):
        assert change.before is not None
        assert change.after is not None
        changed = {c for c, value in change.after.items() if not same(change.before[c], value)}
        assert changed == old.keys()


def test_no_change_of_the_stream_changes_the_key_of_its_row() -> None:
    for change in every_change():
        if change.before is not None and change.after is not None:
            assert all(change.before[column] == change.after[column] for column in change.key_columns or ())


def test_values_are_the_same_whichever_way_a_message_was_read() -> None:
    """Each message by a reader that met none before it, and by one that has a decoder for its shape."""
    practised = registry.get("canal")
    for record in records("canal"):
        expected = decode(registry.get("canal"), record)
        for _ in range(70):
            again = decode(practised, record)
        assert repr(again) == repr(expected)
