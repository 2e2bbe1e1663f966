"""A name that no database allows is no table's: its record is undecodable, and nothing keeps the name."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from building import TOPIC, configuration, record
from canal_packets import packet, row, rows
from confluent_kafka import Message
from prometheus_client import generate_latest
from row_building import statement
from structlog.testing import capture_logs
from test_routing import Stage, handlers_of

from offsets.types import Checkpoint
from worker.fetching.routing import UndecodableHalt
from worker.units.table import LONGEST_NAME
from worker.units.table_book import TableBook

LONG = "t" * (LONGEST_NAME + 1)
NONE = "__undecodable__"


def long_name(number: int) -> str:
    return f"{number}{'n' * 100_000}"


@pytest.mark.parametrize(("table", "database"), [(LONG, "shop"), ("orders", LONG), ("ø" * 257, "shop")])
def test_a_record_whose_table_has_no_possible_name_is_undecodable(table: str, database: str) -> None:
    stage = Stage(on_undecodable="dead_letter")
    parts = stage.route(record(0), record(1, table, database), record(2))
    assert sorted(parts) == [(NONE, [1]), ("shop.orders", [0, 2])]
    with pytest.raises(UndecodableHalt, match=f"undecodable record at .* longer than {LONGEST_NAME} bytes"):
        Stage(on_undecodable="halt").route(record(0), record(1, table, database))


@pytest.mark.parametrize("name", ["t" * LONGEST_NAME, "ø" * (LONGEST_NAME // 2)])
def test_the_longest_name_is_a_tables(name: str) -> None:
    assert Stage().route(record(0, name)) == [(f"shop.{name}", [0])]


def test_it_is_passed_over_where_that_is_asked_for_and_the_log_has_the_beginning_of_its_name() -> None:
    stage = Stage(on_undecodable="skip")
    with capture_logs() as logs:
        assert stage.route(record(0, long_name(0)), record(1)) == [("shop.orders", [1])]
    stage.finish()
    assert stage.checkpoint() == Checkpoint(2)
    assert stage.skipped("undecodable") == 1
    assert [each["event"] for each in logs] == ["record_skipped"]
    assert len(str(logs)) < 1_000


def test_an_error_holds_the_beginning_of_what_a_format_quotes() -> None:
    with pytest.raises(UndecodableHalt) as halt:
        Stage(on_undecodable="halt").route(record(0, long_name(0), ""))
    assert "without a database" not in str(halt.value)
    assert len(str(halt.value)) < 1_500
    stage = Stage(on_undecodable="skip")
    with capture_logs() as logs:
        stage.route(record(0, long_name(0), ""))
    assert len(str(logs)) < 1_000


@pytest.mark.parametrize("database", ["shop", "other"])  # one rule matches shop.*, none other.*
def test_nothing_keeps_such_names(database: str) -> None:
    stage = Stage(on_undecodable="skip")
    stage.route(record(0))
    stage.book.unmatched.met("a.b")
    tracemalloc.start()
    with capture_logs():
        for number in range(100):
            stage.route(record(number + 1, long_name(number), database))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
    assert [unit.table.label for unit in stage.book.all()] == ["shop.orders"]
    assert len(generate_latest(stage.metrics.registry)) < 100_000


def test_nothing_keeps_a_long_spelling_of_a_short_name() -> None:
    """Canal writes the database of some statements with backticks: any number of them, here."""
    stage = Stage()
    assert stage.route(record(0, "a", f"{'`' * 100_000}shop")) == [("shop.a", [0])]
    assert set(stage.book.units) == {"shop"}


def test_a_record_of_several_tables_is_undecodable_if_one_of_them_has_such_a_name() -> None:
    stage = Stage(on_undecodable="dead_letter")
    of_two = packet(rows("a", row({"id": "7"})), rows(LONG, row({"id": "7"})))
    whole = Message(topic=TOPIC, partition=0, offset=0, key=b"k", value=of_two, timestamp=(1, 5))
    assert stage.route(whole) == [(NONE, [0])]  # type: ignore[arg-type]
    assert set(stage.book.units) == {""}


@pytest.mark.parametrize("other", [LONG, f"`{LONG}`.b", f"`{LONG}`.`{LONG}`"])
def test_a_statement_that_names_such_a_table_is_its_own_tables_alone(other: str) -> None:
    stage = Stage()
    assert stage.route(statement(0, f"RENAME TABLE a TO {other}", "a"), record(1, "a")) == [
        ("shop.a", [0]),
        ("shop.a", [1]),
    ]
    assert [unit.table.label for unit in stage.book.all()] == ["shop.a"]


def test_a_statement_of_such_a_table_keeps_no_other_waiting() -> None:
    stage = Stage(on_undecodable="dead_letter")
    parts = stage.route(record(0, "a"), statement(1, f"RENAME TABLE {LONG} TO a", LONG), record(2, "a"))
    assert sorted(parts) == [(NONE, [1]), ("shop.a", [0, 2])]


def test_a_name_like_a_rules_is_looked_for_in_short_names_only() -> None:
    rules = [{"match": f"/shop[{letter}].*/"} for letter in "ab"] + [
        {"match": f"shop.{letter * 200}"} for letter in "abcdefghijklmnopqrst"
    ]
    book = TableBook(configuration(*rules), handlers_of)
    begun = time.thread_time()
    with capture_logs() as logs:
        for number in range(100):
            book.meet("shop", f"{number}{'abcdefghijklmnopqrst' * 25}")
    assert time.thread_time() - begun < 1.0
    assert {each.get("nearest") for each in logs} == {None}
    assert max(len(each.get("table", "")) for each in logs) < 300
    assert json.dumps(logs)
