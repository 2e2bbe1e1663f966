"""Statements in a history: what was, stays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from spark_ddl_lab import DDLLake, MakeLake

from handlers import Rejected

DROPPED = datetime(2025, 6, 15, 15, 6, 40, tzinfo=UTC)
ADDED = "_valid_from timestamp; _valid_to timestamp; _current boolean; _op string; _topic string; "
ADDED += "_partition int; _offset bigint; _index int"


@pytest.fixture
def history(make_lake: MakeLake) -> DDLLake:
    """`t` has two versions of one row."""
    lake = make_lake(mode="history")
    at = "'update', 'cdc', 0, 1, 0"
    lake.put(
        "t",
        f"id int; a int; {ADDED}",
        f"1, 7, TIMESTAMP'2025-01-01 00:00:00Z', TIMESTAMP'2025-02-01 00:00:00Z', false, {at}",
        f"1, 8, TIMESTAMP'2025-02-01 00:00:00Z', null, true, {at}",
    )
    return lake


def versions(lake: DDLLake, what: str, table: str = "t") -> list[tuple[Any, ...]]:
    return [row[1:] for row in lake.rows(f"_valid_from, {what}", table)]


@pytest.mark.soak
def test_a_new_column_has_its_default_in_current_versions_alone(history: DDLLake) -> None:
    history.follow("ALTER TABLE t ADD b int NOT NULL DEFAULT 5, ADD c int AS (a + 1)")
    assert versions(history, "b, c") == [(None, None), (5, 9)]
    assert list(history.columns())[:5] == ["id", "a", "b", "c", "_valid_from"]
    history.follow("ALTER TABLE t ADD n int AUTO_INCREMENT KEY FIRST", key=("id",))
    assert versions(history, "n") == [(None,), (1,)]


@pytest.mark.soak
def test_a_dropped_column_stays_until_another_has_its_name(history: DDLLake) -> None:
    history.follow("ALTER TABLE t DROP a")
    assert versions(history, "a") == [(7,), (8,)]
    history.follow("ALTER TABLE t ADD a varchar(9) NOT NULL DEFAULT 'x'")
    assert versions(history, "a") == [("7",), ("x",)]
    history.follow("ALTER TABLE t DROP a, ADD b int")
    history.follow("ALTER TABLE t RENAME COLUMN b TO a")
    assert versions(history, "a, a_old") == [(None, "7"), (None, "x")]


def test_a_dropped_column_that_cannot_get_its_new_type_stops_the_whole_statement(history: DDLLake) -> None:
    for drops in ("", "DROP v, "):
        if not drops:
            history.follow("ALTER TABLE t ADD v varchar(9) NOT NULL DEFAULT 'abc'", mortal=False)
            history.follow("ALTER TABLE t DROP v, DROP a", mortal=False)
        before = history.columns()
        for _ in range(2):
            with pytest.raises(Rejected, match="do not fit, such as 'abc'"):
                history.follow(
                    f"ALTER TABLE t {drops}RENAME COLUMN id TO id2, ADD m int, ADD v int", mortal=False
                )
        assert history.columns() == before
        history.follow("ALTER TABLE t ADD v varchar(20) NOT NULL DEFAULT 'abc'", mortal=False)


@pytest.mark.soak
def test_a_statement_that_comes_again_changes_nothing(history: DDLLake) -> None:
    added = "ALTER TABLE t DROP PRIMARY KEY, ADD n int AUTO_INCREMENT KEY FIRST, ADD b int NOT NULL DEFAULT 5"
    history.follow(added, key=("id",))
    history.session.sql(f"UPDATE {history.sql_of('t')} SET b = 6 WHERE _current")
    history.follow(added, key=("n",))
    assert versions(history, "n, b") == [(None, None), (1, 6)]
    history.follow("ALTER TABLE t DROP b")
    history.follow("ALTER TABLE t ADD b int NOT NULL DEFAULT 7")
    history.follow("ALTER TABLE t ADD b int NOT NULL DEFAULT 8")
    assert versions(history, "n, b") == [(None, None), (1, 7)]


@pytest.mark.soak
def test_columns_are_renamed_and_retyped_in_all_versions(history: DDLLake) -> None:
    history.follow("ALTER TABLE t CHANGE a b varchar(9)")
    assert versions(history, "b") == [("7",), ("8",)]


@pytest.mark.parametrize("sql", [pytest.param("DROP TABLE t", marks=pytest.mark.soak), "TRUNCATE t"])
def test_versions_end_when_the_rows_do(history: DDLLake, sql: str) -> None:
    later = "TIMESTAMP'2026-01-01 00:00:00Z'"  # by a clock that was set back since
    history.session.sql(
        f"INSERT INTO {history.sql_of('t')} VALUES (2, 9, {later}, null, true, 'insert', 'cdc', 0, 2, 0)"
    )
    history.follow(sql)
    assert versions(history, "_valid_to, _current, a") == [
        (datetime(2025, 2, 1, tzinfo=UTC), False, 7),
        (DROPPED, False, 8),
        (datetime(2026, 1, 1, tzinfo=UTC), False, 9),
    ]


@pytest.mark.soak
def test_a_table_that_is_made_anew_goes_on_with_its_history(history: DDLLake) -> None:
    history.follow("CREATE TABLE IF NOT EXISTS t (id varchar(9))")
    assert history.columns()["id"] == "int"
    history.follow("DROP TABLE t")
    history.follow("CREATE TABLE t (id varchar(9) PRIMARY KEY, w json NOT NULL)")
    assert list(history.columns())[:4] == ["id", "a", "w", "_valid_from"]
    assert versions(history, "id, a, w") == [("1", 7, None), ("1", 8, None)]
    # To fill in no current row makes no commit, by which a worker that dies after it would know.
    history.follow("ALTER TABLE t ADD a varchar(9)", mortal=False)
    assert versions(history, "id, a, w") == [("1", "7", None), ("1", "8", None)]


@pytest.mark.soak
def test_an_ended_history_makes_room_for_a_table_of_its_name(history: DDLLake) -> None:
    history.follow("CREATE TABLE u LIKE t", table="u")
    history.follow("CREATE TABLE w (id int)", table="w")
    assert list(history.columns("w")) == ["id", *(part.split()[0] for part in ADDED.split(";"))]
    assert history.columns("u") == history.columns("t")
    history.follow("DROP TABLE t")
    history.follow("RENAME TABLE w TO t", table="w")
    assert versions(history, "id") == []
    assert versions(history, "a", "t_old") == [(7,), (8,)]
