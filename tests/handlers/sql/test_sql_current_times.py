"""MySQL and MariaDB set a column ON UPDATE CURRENT_TIMESTAMP in each UPDATE that does not set it.

A server without explicit_defaults_for_timestamp gives that to the first TIMESTAMP NOT NULL of a table, also
of one that binlane makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from ddl_lab import DDLLab
from sql_lab import SqlLab, orders, ruled

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
TYPES = {"id": "int", "at": "timestamp", "note": "varchar(9)"}
COLUMN = "timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"


@pytest.fixture
def lab(make_sql: Callable[[str], SqlLab]) -> Iterator[SqlLab]:
    """Of a server that gives TIMESTAMP columns defaults of its own."""
    made = make_sql("mariadb")
    made.run("SET GLOBAL explicit_defaults_for_timestamp = 0")
    yield made
    made.run("SET GLOBAL explicit_defaults_for_timestamp = 1")


def times(lab: SqlLab) -> set[Any]:
    return {one["at"] for one in lab.rows(columns="`at`")}


def update(number: int, note: str) -> dict[str, Any]:
    lacks = frozenset(("at",))
    return {"before": None, "after": {"id": number, "note": note}, "op": "update", "lacks": lacks}


@pytest.mark.parametrize("count", [1, 2])
def test_a_key_of_a_made_table_stays(lab: SqlLab, count: int) -> None:
    with lab.handler() as handler:
        for offset, note in ((0, "a"), (10, "b")):
            rows = [{"id": number, "at": LONG_AGO, "note": note} for number in range(count)]
            handler.handle(orders(*rows, key=("id", "at"), types=TYPES, offset=offset))
    assert times(lab) == {LONG_AGO.replace(tzinfo=None)}
    assert [one["note"] for one in lab.rows()] == ["b"] * count


@pytest.mark.parametrize("types", [TYPES, None], ids=["with types", "without"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_column_that_an_update_lacks_stays(lab: SqlLab, count: int, types: Any) -> None:
    lab.make("shop.orders", f"id int PRIMARY KEY, note varchar(9), `at` {COLUMN}")
    with lab.handler() as handler:
        rows = [{"id": number, "at": LONG_AGO, "note": "a"} for number in range(count)]
        handler.handle(orders(*rows, types=types))
        handler.handle(orders(*[update(number, "b") for number in range(count)], types=types, offset=10))
    assert times(lab) == {LONG_AGO.replace(tzinfo=None)}
    assert [one["note"] for one in lab.rows()] == ["b"] * count


def test_a_row_that_moves_keeps_its_time(lab: SqlLab) -> None:
    lab.make("shop.orders", f"id int PRIMARY KEY, note varchar(9), `at` {COLUMN}")
    gone = {"op": "delete", "before": {"id": 1}, "after": None, "moves_key": True, "offset": 9}
    made = {"op": "insert", "after": {"id": 2}, "moves_key": True, "offset": 9, "index": 1}
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "at": LONG_AGO, "note": "a"}, types=TYPES))
        lacking = {**made, "lacks": frozenset(("at", "note"))}
        handler.handle(orders(gone, lacking, types=TYPES))
    assert lab.rows() == [{"id": 2, "note": "a", "at": LONG_AGO.replace(tzinfo=None)}]


def test_a_row_without_a_key_keeps_its_time(lab: SqlLab) -> None:
    lab.make("shop.orders", f"id int, note varchar(9), `at` {COLUMN}")
    old = {"id": 1, "at": LONG_AGO, "note": "a"}
    changed = {"before": old, "after": {"id": 1, "note": "b"}, "op": "update", "lacks": frozenset(("at",))}
    with lab.handler() as handler:
        handler.handle(orders(old, key=None, types=TYPES))
        handler.handle(orders(changed, key=None, types=TYPES, offset=1))
    assert lab.rows() == [{"id": 1, "note": "b", "at": LONG_AGO.replace(tzinfo=None)}]


@pytest.mark.parametrize("types", [{"id": "int", "note": "varchar(9)"}, None], ids=["with types", "without"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_time_of_the_targets_own_is_still_set(lab: SqlLab, count: int, types: Any) -> None:
    """Also where the source tells no types: a whole row lacks no column."""
    lab.make("shop.orders", f"id int PRIMARY KEY, note varchar(9), `at` {COLUMN}")
    whole = [{**update(number, "b"), "lacks": frozenset()} for number in range(count)]
    with lab.handler() as handler:
        handler.handle(orders(*[{"id": number, "note": "a"} for number in range(count)], types=types))
        lab.run("UPDATE shop.orders SET `at` = '2020-01-01'")
        handler.handle(orders(*whole, types=types, offset=10))
    assert LONG_AGO.replace(tzinfo=None) not in times(lab)
    assert [one["note"] for one in lab.rows()] == ["b"] * count


def test_rows_that_a_truncate_marks_keep_their_times(lab: SqlLab) -> None:
    lab.make("shop.orders", f"id int PRIMARY KEY, note varchar(9), `at` {COLUMN}")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "at": LONG_AGO, "note": "a"}, types=TYPES))
        truncate = {"op": "truncate", "sql": "TRUNCATE TABLE shop.orders", "source_time_ms": 1}
        handler.handle(ruled(orders(truncate, offset=1), deletes="mark"))
    [row] = lab.rows()
    assert (row["at"], row["deleted_at"] is None) == (LONG_AGO.replace(tzinfo=None), False)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN n int AUTO_INCREMENT UNIQUE",
        "ALTER TABLE t MODIFY s set('b','a')",
    ],
)
def test_rows_that_a_statement_changes_keep_their_times(
    make_lab: Callable[[str], DDLLab], statement: str
) -> None:
    lab = make_lab("mariadb")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql("CREATE DATABASE db")
        connection.exec_driver_sql(f"CREATE TABLE db.t (id int PRIMARY KEY, s varchar(9), `at` {COLUMN})")
        connection.exec_driver_sql("INSERT INTO db.t VALUES (1, 'a,b', '2020-01-01')")
    lab.follow(statement)
    assert lab.rows("`at`") == [("2020-01-01 00:00:00",)]
