"""Columns of a replica added, dropped, renamed; every statement by workers that die after each step."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from spark_ddl_lab import IN_ONE_LIFE, DDLLake
from structlog.testing import capture_logs

from handlers.mysql.ddl.rules import DDLRules

NEW_COLUMNS: list[tuple[str, Any]] = [
    ("int NOT NULL DEFAULT 18", 18),
    ("int NULL DEFAULT NULL", None),
    ("int", None),
    ("int NOT NULL", 0),
    ("varchar(9) NOT NULL", ""),
    ("text NOT NULL", ""),
    ("varchar(40) DEFAULT 'it''s 100% \\\\ :x `列'", "it's 100% \\ :x `列"),
    ("varchar(40) DEFAULT '${env:PATH} ${nothing}'", "${env:PATH} ${nothing}"),
    ("decimal(6,3) DEFAULT '1.5'", Decimal("1.500")),
    ("decimal(6,3) NOT NULL", Decimal("0.000")),
    ("decimal(40,1) DEFAULT '1.5'", "1.5"),
    ("bigint unsigned DEFAULT 18446744073709551615", Decimal(2**64 - 1)),
    ("double DEFAULT -2.5", -2.5),
    ("date DEFAULT '2024-02-29'", date(2024, 2, 29)),
    ("date NOT NULL DEFAULT '0000-00-00'", None),
    ("enum('b','a') NOT NULL", "b"),
    ("set('b','a') DEFAULT 'a,b'", ["b", "a"]),
    ("set('b','a') NOT NULL", []),
    ("char(2) DEFAULT x'6162'", "ab"),
    ("binary(3) DEFAULT 'ab'", b"ab\0"),
    ("json NOT NULL", "null"),
    ("char(36) DEFAULT (uuid())", None),
    ("bit(1) DEFAULT b'1'", 1),
    ("time DEFAULT '-838:59:59'", "-838:59:59"),
    ("time(2) NOT NULL", "00:00:00.00"),
    ("time DEFAULT '10:00'", None),
    ("int DEFAULT 1.55", None),
    ("year DEFAULT 5", 2005),
    ("year DEFAULT '70'", 1970),
    ("year DEFAULT '0'", 2000),
    ("year DEFAULT 0", 0),
    ("char(9) DEFAULT ' a '", " a"),
    ("datetime DEFAULT now()", datetime(2025, 6, 15, 15, 6, 40)),
    ("timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", datetime(2025, 6, 15, 15, 6, 40, tzinfo=UTC)),
    ("varchar(9) GENERATED ALWAYS AS (upper(total))", None),
    ("int AS (n - 1) NOT NULL", None),  # not its implicit default
]


@IN_ONE_LIFE
def test_a_new_column_holds_what_the_source_gave_to_its_rows(lake: DDLLake, mortal: bool) -> None:
    lake.put("t", "id int; n int; total decimal(12,2)", "1, 2147483647, 9999999999.99")
    clauses = ", ".join(f"ADD COLUMN c{at} {definition}" for at, (definition, _) in enumerate(NEW_COLUMNS))
    with capture_logs() as logs:
        lake.follow(f"ALTER TABLE t {clauses}", mortal=mortal)
    told = {each["default"] for each in logs if each["event"] == "ddl_default_not_known"}
    assert told == {"0000-00-00", "uuid()", "10:00", "1.55"}
    arrow = lake.session.sql(f"SELECT * FROM {lake.sql_of('t')}").toArrow().to_pylist()
    found = [arrow[0][f"c{at}"] for at in range(len(NEW_COLUMNS))]
    assert found == [value for _, value in NEW_COLUMNS]
    assert {each["column"] for each in logs if each["event"] == "ddl_rows_not_computed"} == {
        f"c{len(NEW_COLUMNS) - 2}",
        f"c{len(NEW_COLUMNS) - 1}",
    }
    assert lake.commits() == ["ADD COLUMNS", "UPDATE"]


@pytest.mark.soak
def test_a_new_column_stands_where_the_source_has_it(lake: DDLLake) -> None:
    lake.put("t", "id int; b int", "1, 2")
    lake.follow("ALTER TABLE t ADD a int FIRST, ADD `x y` int AFTER ID, ADD z int AFTER `x y`, ADD e int")
    assert list(lake.columns()) == ["a", "id", "x y", "z", "b", "e"]
    lake.follow("ALTER TABLE t MODIFY e bigint FIRST, MODIFY b int AFTER a, MODIFY id int")
    assert list(lake.columns()) == ["e", "a", "b", "id", "x y", "z"]
    assert lake.rows("id, b, e") == [(1, 2, None)]


def test_a_column_that_is_there_keeps_its_values(lake: DDLLake) -> None:
    lake.put("t", "id int; a int", "1, 2")
    assert lake.follow("ALTER TABLE t ADD A int NOT NULL DEFAULT 7").done == ()
    assert lake.rows() == [(1, 2)]


def test_columns_are_dropped_in_one_commit(lake: DDLLake) -> None:
    lake.put("t", "id int; a int; `b,c` string", "1, 2, 'x'")
    result = lake.follow("ALTER TABLE t DROP A, DROP COLUMN `b,c`, DROP nothing", key=("id", "a"))
    assert lake.rows() == [(1,)]
    assert lake.commits() == ["SET TBLPROPERTIES", "DROP COLUMNS"] or lake.commits() == ["DROP COLUMNS"]
    assert result.key == ("id",)


def test_columns_are_renamed_swapped_and_spelled_anew(lake: DDLLake) -> None:
    lake.put("t", "id int; a int; b int; c int", "1, 2, 3, 4")
    result = lake.follow(
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, RENAME COLUMN c TO C, "
        "CHANGE id `u id` bigint",
        key=("id", "a"),
    )
    assert lake.columns() == {"u id": "bigint", "b": "int", "a": "int", "C": "int"}
    assert lake.rows() == [(1, 2, 3, 4)]
    assert result.key == ("u id", "b")
    lake.follow("ALTER TABLE t RENAME COLUMN a TO c2, RENAME COLUMN b TO a, RENAME COLUMN c2 TO b")
    lake.follow("ALTER TABLE t RENAME COLUMN nothing TO a, RENAME COLUMN a TO C")
    assert lake.rows("b, a") == [(3, 2)]


def test_a_dropped_column_that_stays_gives_way_to_a_new_one_of_its_name(lake: DDLLake) -> None:
    keeps = DDLRules.model_validate({"drop_columns": False})
    lake.put("t", "id int; a int; b int; c string", "1, 10, 20, 'x'")
    lake.follow("ALTER TABLE t DROP b, DROP c", rules=keeps)
    assert lake.rows() == [(1, 10, 20, "x")]
    lake.follow("ALTER TABLE t RENAME COLUMN a TO b, ADD c int DEFAULT 5", rules=keeps)
    types = {"id": "int", "b": "int", "b_old": "int", "c_old": "string", "c": "int"}
    assert lake.columns() == types
    assert lake.rows("id, b, b_old, c_old, c") == [(1, 10, 20, "x", 5)]


@pytest.mark.soak
def test_the_numbers_of_a_new_column_are_those_of_innodb(lake: DDLLake) -> None:
    lake.put("t", "o bigint; l int", "10, 1", "9, 2", "9, 1")
    result = lake.follow(
        "ALTER TABLE t DROP PRIMARY KEY, ADD uid int NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST",
        key=("o", "l"),
    )
    assert lake.rows() == [(1, 9, 1), (2, 9, 2), (3, 10, 1)]
    assert result.key == ("uid",)
    lake.follow("ALTER TABLE t ADD n int AUTO_INCREMENT UNIQUE, AUTO_INCREMENT = 100", key=("uid",))
    assert lake.rows("uid, n") == [(1, 100), (2, 101), (3, 102)]
    lake.put("u", "a string", "'é'")
    lake.follow("ALTER TABLE u ADD uid int NOT NULL AUTO_INCREMENT PRIMARY KEY", key=("a",))
    assert lake.rows(table="u") == [("é", None)]


@pytest.mark.parametrize("sql", ["ALTER TABLE no_such_table ADD a int, DROP b", "CREATE INDEX i ON t (a)"])
def test_nothing_is_done_where_nothing_is_to_do(lake: DDLLake, sql: str) -> None:
    assert lake.follow(sql, mortal=False).done == ()
