"""Every version of each row, in each target that keeps histories: by a model, however the changes come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import make
from row_versions import RowVersions, Version, any_life, read_time
from target_kinds import Target
from test_targets import part, process

from handlers import Batch, Rejected
from handlers.rows import borders
from handlers.testing import make_batch
from handlers.versioned.versions import Unfit

START, END = "__START_AT", "__END_AT"
TYPES = {"id": "int", "name": "varchar(20)", "qty": "int"}


@pytest.fixture(params=["sqlite", "duckdb", "postgres", "mariadb", "clickhouse"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    target = make(request.param, request, tmp_path)
    return replace(target, entry={**target.entry, "mode": "history"})


def stored(target: Target, table: str = "shop.orders") -> list[Version]:
    return sorted(
        (
            (row["id"], row["name"], row["qty"], read_time(row[START]), read_time(row[END]))
            for row in target.stored(table)
        ),
        key=str,
    )


def batch(*changes: Mapping[str, Any], offset: int = 0, **more: Any) -> Batch:
    timed = [
        {"source_time_ms": 1000 * (offset + place), **change} for place, change in enumerate(changes, start=1)
    ]
    return make_batch("shop.orders", timed, key="id", types=TYPES, topic="cdc", offset=offset, **more)


def row(id_: int, name: str | None = "a", qty: int | None = 1) -> dict[str, Any]:
    return {"id": id_, "name": name, "qty": qty}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_what_comes_again_in_other_pieces_gives_the_same_versions(
    history: Target, tmp_path: Path, seed: int
) -> None:
    """A process ends anywhere, and the next one is given an earlier position."""
    pick, whole, model = Random(seed), any_life(seed, 400), RowVersions()
    for change in whole.changes:
        model.follow(change)
    places = borders(whole.changes, 0, len(whole.changes))
    done, last = 0, len(places) - 1
    while done < last:
        with process(history, tmp_path) as handler:
            position = pick.randint(max(0, done - 40), done)
            for _ in range(pick.randint(1, 6)):
                end = min(last, position + pick.choice((1, 9, 60)))
                for _ in range(pick.randint(1, 2)):
                    handler.handle(part(whole, places[position], places[end]))
                position, done = end, max(done, end)
                if end == last:
                    break
    assert stored(history) == model.all
    with process(history, tmp_path) as handler:
        handler.handle(whole)
    assert stored(history) == model.all


def test_a_late_change_counts_as_made_with_the_last_one(history: Target, tmp_path: Path) -> None:
    with process(history, tmp_path) as handler:
        handler.handle(
            batch(
                {"after": row(1), "source_time_ms": 50_123},
                {"before": row(1), "after": row(1, "b"), "source_time_ms": 40_000},
            )
        )
        handler.handle(batch({"before": row(1, "b"), "after": None, "source_time_ms": 45_000}, offset=2))
        handler.handle(batch({"after": row(1, "c"), "source_time_ms": 10_000}, offset=3))
    assert stored(history) == [
        (1, "a", 1, 50_123, 50_123),
        (1, "b", 1, 50_123, 50_123),
        (1, "c", 1, 50_123, None),
    ]


def test_a_snapshot_again_adds_only_what_is_new(history: Target, tmp_path: Path) -> None:
    with process(history, tmp_path) as handler:
        handler.handle(batch({"after": row(1)}, {"after": row(2, None, None)}))
        again = [
            {"op": "snapshot", "after": each} for each in (row(1), row(2, None, None), row(2, "b"), row(3))
        ]
        handler.handle(batch(*again, *again[::2], offset=2))
    assert stored(history) == sorted(
        [
            (1, "a", 1, 1000, None),
            (2, None, None, 2000, 5000),
            (2, "b", 1, 5000, None),
            (3, "a", 1, 6000, None),
        ],
        key=str,
    )


def test_a_snapshot_that_equals_a_row_of_an_update_alone_adds_nothing(
    history: Target, tmp_path: Path
) -> None:
    """The update lacks a column, and the row before it is unknown. So the column is NULL."""
    lacks = {"before": {"id": 1}, "after": {"id": 1, "name": "a"}, "lacks": frozenset({"qty"})}
    whole = batch(lacks, {"op": "snapshot", "after": row(1, "a", None)}, {"after": row(1, "b")})
    with process(history, tmp_path) as handler:
        for place in range(3):
            handler.handle(part(whole, place, place + 1))
        handler.handle(whole)
    assert stored(history) == [(1, "a", None, 1000, 3000), (1, "b", 1, 3000, None)]


def test_a_column_that_a_function_makes_of_lacking_ones_keeps_its_value(
    history: Target, tmp_path: Path
) -> None:
    """As in a replica. `lacks` has the source's columns alone."""
    lacks = {"before": {"id": 1}, "after": {"id": 1, "qty": 2}, "lacks": frozenset({"name"})}
    with process(history, tmp_path) as handler:
        handler.handle(batch({"after": {**row(1), "made_of_name": "A"}}, lacks))
    [*_, last] = sorted(history.stored("shop.orders"), key=lambda each: str(each[START]))
    assert (last["name"], last["qty"], last["made_of_name"]) == ("a", 2, "A")


def test_a_truncate_of_a_late_time_ends_no_version_before_its_start(history: Target, tmp_path: Path) -> None:
    truncate = {"op": "truncate", "sql": "TRUNCATE TABLE orders", "source_time_ms": 1500}
    with process(history, tmp_path) as handler:
        for _ in range(2):
            handler.handle(batch({"after": row(1)}, {"after": row(2)}, truncate))
        handler.handle(batch({"after": row(1, "b"), "source_time_ms": 1400}, offset=3))
    assert stored(history) == [(1, "a", 1, 1000, 1500), (1, "b", 1, 1500, None), (2, "a", 1, 2000, 2000)]


def test_names_of_the_period_may_be_chosen(history: Target, tmp_path: Path) -> None:
    entry = {**history.entry, "start_column": "valid_from", "end_column": "valid_to"}
    with process(replace(history, entry=entry), tmp_path) as handler:
        handler.handle(batch({"after": row(1)}, {"before": row(1), "after": row(1, "b")}))
    found = [
        (each["name"], read_time(each["valid_from"]), read_time(each["valid_to"]))
        for each in history.stored("shop.orders")
    ]
    assert sorted(found, key=str) == [("a", 1000, 2000), ("b", 2000, None)]


def test_rows_that_no_history_can_keep_are_rejected(history: Target, tmp_path: Path) -> None:
    with process(history, tmp_path) as handler:
        for given in ({"name": "a"}, {**row(1), "id": None}, {**row(1), END: "2020-01-01"}):
            with pytest.raises(Rejected):
                handler.handle(batch({"after": given}))
        with pytest.raises(Rejected):
            handler.handle(make_batch("shop.orders", [row(1)], types=TYPES))
        handler.handle(batch({"after": row(1)}))
    assert stored(history) == [(1, "a", 1, 1000, None)]


def test_a_replica_and_a_history_never_share_a_table(history: Target, tmp_path: Path) -> None:
    replica = replace(history, entry={**history.entry, "mode": "replica"})
    for first, second in ((history, replica), (replica, history)):
        table = f"shop.{first.entry['mode']}s"

        def change(offset: int, table: str = table) -> Batch:
            return make_batch(table, [row(1)], key="id", types=TYPES, topic="cdc", offset=offset)

        with process(first, tmp_path) as handler:
            handler.handle(change(0))
        with process(second, tmp_path) as handler, pytest.raises((Rejected, Unfit), match=r"history|_opened"):
            handler.handle(change(1))
        assert len(history.stored(table)) == 1
