"""Millions of table names, thousands of tables kept: nothing lost, doubled or out of order by it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from building import configuration, ddl, record
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_building import offsets
from prometheus_client import generate_latest
from row_building import key_change, rows
from table_stage import KEEP, TableStage

from worker.units.table_book import TableBook
from worker.units.work import Work


def names(book: TableBook) -> int:
    return sum(map(len, book.units.values()))


def test_tables_that_were_not_used_for_longest_are_let_go_of_and_met_again_when_they_come() -> None:
    stage = TableStage()
    for number in range(50):
        stage.one_each("often", f"t{number}")
        stage.finish_all()
        assert len(stage.book.all()) <= KEEP + 3
    kept = {unit.table.name for unit in stage.book.all()}
    assert {"often", "t49", "t48"} <= kept
    assert "t0" not in kept
    assert names(stage.book) == len(kept)
    often = stage.book.meet("shop", "often")
    assert often is not None
    assert often.finished_records == 50
    stage.one_each("t0")
    stage.finish_all()
    assert sum(stage.finished().values()) == 101
    assert stage.finished()["shop.t0"] == 2, "it goes on where its count ended"


def test_tables_that_were_busy_when_there_were_too_many_are_let_go_of_once_they_rest() -> None:
    stage = TableStage()
    stage.poll(*(record(number, f"t{number}") for number in range(20)))
    stage.poll()
    assert len(stage.book.all()) == 20
    stage.finish_all()
    stage.poll()
    assert len(stage.book.all()) == KEEP, "though no new table comes"


@pytest.mark.parametrize(
    "ending", ["queued", "gathering", "running", "kept", "halted", "behind a statement about two tables"]
)
def test_a_table_that_holds_anything_is_never_let_go_of(ending: str) -> None:
    """Else a second one of its name would run at the same time, out of order."""
    stage = TableStage()
    held: Work | None = None
    if ending == "behind a statement about two tables":
        both = record(1, "other", isDdl=True, type="RENAME", sql="RENAME TABLE other TO busy", data=None)
        stage.poll(record(0, "other"), both)
        unit = stage.book.meet("shop", "busy")
        assert unit is not None
        assert [len(chunk.messages) for chunk in unit.chunks] == [0]
        held = stage.take(1)
    else:
        unit = stage.book.meet("shop", "busy")
        assert unit is not None
        unit.table.max_wait = 60.0 * (ending == "gathering")
        stage.one_each("busy")
    if ending in {"running", "kept", "halted"}:
        held = stage.take(1)
        assert held is not None
    if ending == "kept":
        stage.lanes.give_back(1, held, delay=1e6)
    if ending == "halted":
        stage.lanes.halt(1, held, "for good")
    for number in range(20):
        stage.one_each(f"t{number}")
        while ending != "queued" and (work := stage.take(0)) is not None:
            stage.finish(work)
    assert stage.book.meet("shop", "busy") is unit
    assert unit in stage.book.all()


def test_a_table_in_row_order_is_not_let_go_of_while_a_shard_holds_anything() -> None:
    stage = TableStage(order_by="row")
    stage.poll(rows(0, 1, 2, table="busy"))
    unit = stage.book.meet("shop", "busy")
    first, second = stage.take(0), stage.take(1)
    assert first is not None
    assert second is not None
    stage.finish(first)  # its shard is gone: the record counts when the other is done, too
    stage.lanes.give_back(1, second, delay=1e6)
    for number in range(20):
        stage.one_each(f"t{number}")
        stage.finish_all()
    assert stage.book.meet("shop", "busy") is unit


def test_names_that_no_rule_matches_take_a_bounded_place_and_no_label() -> None:
    stage = TableStage()
    for number in range(30):
        stage.poll(*(record(stage.next + n, f"t{number}_{n}", f"other_{n}") for n in range(1_000)))
        assert names(stage.book) <= 20_000
    assert stage.book.all() == []
    stage.one_each("a", "b")
    stage.finish_all()
    assert stage.finished() == {"shop.a": 1, "shop.b": 1}
    scrape = generate_latest(stage.metrics.registry).decode()
    assert 'binlane_records_skipped_total{reason="unmatched"} 30000.0' in scrape


def test_a_table_that_only_a_statement_names_takes_no_label() -> None:
    stage = TableStage(labels=2)
    for number in range(10):
        sql = f"RENAME TABLE invented_{number} TO invented_{number}_too"
        stage.poll(record(stage.next, "a", isDdl=True, type="RENAME", sql=sql, data=None))
        stage.finish_all()
        assert set(stage.finished()) == {"shop.a"}
    stage.one_each("b")
    stage.finish_all()
    assert stage.finished() == {"shop.a": 10, "shop.b": 1}


def test_a_table_whose_name_records_spell_in_many_ways_is_one_and_takes_a_bounded_place() -> None:
    stage = TableStage()
    unit = stage.book.meet("shop", "orders")
    for number in range(50_000):
        stage.book.note("shop", f"orders\\u{number}", unit)
    assert names(stage.book) <= 20_001
    assert stage.book.meet("shop", "orders") is unit
    stage.one_each("orders")
    stage.finish_all()
    for number in range(20):
        stage.one_each(f"t{number}")
        stage.finish_all()
    assert unit not in stage.book.all()
    spelled = [name for tables in stage.book.units.values() for name, each in tables.items() if each is unit]
    assert spelled == [], "else its records would go to the old one and to a new one"


def test_after_a_reload_the_tables_that_were_let_go_of_follow_the_new_rules() -> None:
    stage = TableStage()
    for number in range(20):
        stage.one_each(f"t{number}")
        stage.finish_all()
    stage.book.adopt(configuration({"match": "shop.t1*"}, lanes={"count": 2}))
    assert stage.book.meet("shop", "t0") is None
    again = stage.book.meet("shop", "t19")
    assert again in stage.book.all()
    for number in range(20):
        stage.one_each(f"t1{number}")
        stage.finish_all()
    assert all(unit.table.name.startswith("t1") for unit in stage.book.all()), "those left are let go of, too"


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("poll"), st.lists(st.integers(0, 7), min_size=1, max_size=4)),
        st.tuples(st.sampled_from(["take", "finish", "give back", "halt", "ddl"]), st.integers(0, 1)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(order_by=st.sampled_from(["table", "row"]), events=EVENTS)
def test_however_tables_come_and_go_each_record_is_handled_once_and_in_order(
    order_by: str, events: list[tuple[str, Any]]
) -> None:
    stage = TableStage(order_by=order_by, keep=2)
    at_work: dict[int, Work] = {}
    handled: dict[str, list[int]] = defaultdict(list)
    before: dict[str, float] = {}

    def end(lane: int) -> None:
        work = at_work.pop(lane)
        handled[work.unit.table.name] += offsets(work)
        stage.finish(work, lane)

    for event, what in events:
        if event == "poll":
            made = [rows(stage.next + n, table, table=f"t{table}") for n, table in enumerate(what)]
            stage.poll(*made)
        elif event == "ddl":
            stage.poll(ddl(stage.next, f"t{what}"))
        elif event == "take" and what not in at_work and (work := stage.take(what)) is not None:
            assert all(each.unit.table.label != work.unit.table.label for each in at_work.values())
            at_work[what] = work
        elif event == "finish" and what in at_work:
            end(what)
        elif event == "give back" and what in at_work:
            stage.lanes.give_back(what, at_work.pop(what), delay=0.0)
        elif event == "halt" and what in at_work and len(at_work) == 2:
            stage.lanes.halt(what, at_work.pop(what), "for now")
        after = stage.finished()
        # The last table with a name of its own joins the others as soon as there is one more.
        assert all(after[label] >= count for label, count in before.items() if label in after)
        assert len(set(before) - set(after)) <= 1
        assert sum(after.values()) == stage.lanes.seen.finished_records == sum(map(len, handled.values()))
        before = after
    for lane in list(at_work):
        end(lane)
    stage.lanes.give_tables([(unit, unit.table) for unit in stage.book.all()])  # what halted goes on
    while (work := stage.take()) is not None:
        at_work[0] = work
        end(0)
    assert all(found == sorted(found) for found in handled.values())
    assert sorted(each for found in handled.values() for each in found) == list(range(stage.next))
    assert stage.of.tracker.unfinished == 0


def test_a_barrier_of_one_table_is_passed_when_the_table_was_let_go_of_before() -> None:
    stage = TableStage(order_by="row")
    stage.poll(rows(0, 1, table="busy"), key_change(1, 1, 2, table="busy"), rows(2, 2, table="busy"))
    stage.finish_all()
    for number in range(20):
        stage.one_each(f"t{number}")
        stage.finish_all()
    stage.poll(rows(stage.next, 2, table="busy", key=("at",)), ddl(stage.next + 1, "busy"))
    stage.finish_all()
    assert stage.of.tracker.unfinished == 0
    assert sum(stage.finished().values()) == stage.lanes.seen.finished_records == 25
