"""Mode history: every version of each row."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from row_versions import RowVersions, any_life, read_time
from spark_lake import TYPES, MakeLake, change

from handlers import Batch
from handlers.rows import borders


def at(offset: int) -> datetime:
    return datetime.fromtimestamp(1_790_000_000.123 + offset / 1000, UTC)


# The same without a handler: spark_delta/test_delta_history.py.
@pytest.mark.soak
def test_each_row_has_its_versions_with_their_times_and_the_change_that_opened_them(
    make_lake: MakeLake,
) -> None:
    lake = make_lake(mode="history")
    lake.take(
        change(0, {"id": 1, "name": "a"}),
        change(1, {"id": 2, "name": "x"}),
        change(2, {"id": 1, "name": "b"}, op="update", before={"id": 1, "name": "a"}),
    )
    lake.merge()
    lake.take(change(3, None, op="delete", before={"id": 2, "name": "x"}))
    lake.take(change(4, {"id": 1, "name": "c"}, op="update", before={"id": 1, "name": "b"}))
    lake.merge()
    columns = "id, name, _valid_from, _valid_to, _current, _op, _topic, _partition, _offset, _index"
    assert lake.rows(columns) == [
        (1, "a", at(0), at(2), False, "insert", "cdc", 0, 0, 0),
        (1, "b", at(2), at(4), False, "update", "cdc", 0, 2, 0),
        (1, "c", at(4), None, True, "update", "cdc", 0, 4, 0),
        (2, "x", at(1), at(3), False, "insert", "cdc", 0, 1, 0),
    ]


@pytest.mark.soak
def test_columns_come_and_go_and_a_truncate_ends_all_versions(make_lake: MakeLake) -> None:
    lake = make_lake(mode="history")
    lake.take(
        change(0, {"id": 1, "name": "a"}),
        change(1, {"id": 2, "name": "b", "more": 5}, {**TYPES, "more": "int"}),
        change(2, None, None, op="truncate", sql="TRUNCATE orders"),
        change(3, {"id": 1, "more": 6}, {"id": "int", "more": "bigint"}),
    )
    lake.crash()
    lake.take(change(3, {"id": 1, "more": 6}, {"id": "int", "more": "bigint"}))
    lake.merge()
    assert lake.rows("id, name, more, _valid_from, _valid_to, _current") == [
        (1, "a", None, at(0), at(2), False),
        (1, None, 6, at(3), None, True),
        (2, "b", 5, at(1), at(2), False),
    ]


@pytest.mark.soak
def test_any_changes_give_the_versions_that_histories_of_other_targets_have(make_lake: MakeLake) -> None:
    """Beside the same model: targets/test_histories.py."""
    lake, whole, model = make_lake(mode="history"), any_life(4, 300), RowVersions()
    for each in whole.changes:
        model.follow(each)
    places = borders(whole.changes, 0, len(whole.changes))
    for first, end in pairwise([*places[::70], places[-1]]):
        lake.handler.handle(
            Batch(whole.table, whole.changes[first:end], database=whole.database, name=whole.name)
        )
        lake.merge()
    found = lake.rows("id, name, qty, _valid_from, _valid_to")
    assert sorted(((*row[:3], *map(read_time, row[3:])) for row in found), key=str) == model.all
