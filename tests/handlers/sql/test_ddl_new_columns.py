"""Columns added in each target; the same statement again changes nothing."""

from __future__ import annotations

import pytest
from ddl_lab import DDLLab
from structlog.testing import capture_logs

NEW_COLUMNS = [
    ("int NOT NULL DEFAULT 18", "18"),
    ("int NULL DEFAULT NULL", None),
    ("int", None),
    ("int NOT NULL", "0"),
    ("varchar(9) NOT NULL", ""),
    ("text NOT NULL", ""),
    ("varchar(40) DEFAULT 'it''s 100% \\\\ :x 列'", "it's 100% \\ :x 列"),
    ("decimal(6,3) DEFAULT '1.5'", "1.500"),
    ("decimal(6,3) NOT NULL", "0.000"),
    ("bigint unsigned DEFAULT 18446744073709551615", "18446744073709551615"),
    ("double DEFAULT -2.5", "-2.5"),
    ("date DEFAULT '2024-02-29'", "2024-02-29"),
    ("date NOT NULL DEFAULT '0000-00-00'", None),
    ("int DEFAULT (-(5))", None),
    ("varchar(9) DEFAULT 007", None),
    ("varchar(9) DEFAULT 1.50", "1.50"),
    ("enum('b','a') DEFAULT 'A'", None),
    ("enum('b ','a') DEFAULT 'b '", "b"),
    ("set('b','a') DEFAULT 'A,b'", None),
    ("bit(8) DEFAULT '5'", None),
    ("year DEFAULT b'1'", None),
    ("int DEFAULT x'35'", None),
    ('enum("b","a") NOT NULL', "b"),
    ("enum('b','a') NOT NULL", "b"),
    ("set('b','a') DEFAULT 'a,b'", "b,a"),
    ("char(2) DEFAULT x'6162'", "ab"),
    ("binary(3) DEFAULT 'ab'", "ab\0"),
    ("json NOT NULL", "null"),
    ("char(36) DEFAULT (uuid())", None),
]


@pytest.mark.parametrize(("definition", "value"), NEW_COLUMNS, ids=[one[0] for one in NEW_COLUMNS])
def test_a_new_column_holds_what_the_source_gave_to_its_rows(
    lab: DDLLab, definition: str, value: str | None
) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow(f"ALTER TABLE t ADD COLUMN c {definition} FIRST")
    lab.put({"id": "int"}, {"id": 2})  # later rows bring their own values
    assert lab.rows("id, c") == [("1", value), ("2", None)]


def test_a_new_moment_is_that_of_the_statement(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow(
        "ALTER TABLE t ADD (a datetime DEFAULT now(), b timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3))"
    )
    [(a, b)] = lab.rows("a, b")
    assert str(a).startswith("2025-06-15 15:06:40")
    assert str(b).startswith("2025-06-15 15:06:40")


def test_a_new_bit_is_a_number(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t ADD flag bit(1) DEFAULT b'1'")
    assert lab.rows("flag + 0") == [("1",)]


def test_a_new_time_runs_beyond_a_day(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t ADD c time DEFAULT '-838:59:59'")
    assert lab.rows("c") in ([("-838:59:59",)], [("-35 days, 1:00:01",)])


def test_rows_that_are_there_lack_the_values_of_a_generated_column_and_that_is_told(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 4})
    with capture_logs() as logs:
        lab.follow("ALTER TABLE t ADD g int AS (id * 2) STORED NOT NULL, ADD h char(9) AS (hex(id)) NOT NULL")
    told = {each["column"]: each["expression"] for each in logs if each["event"] == "ddl_rows_not_computed"}
    assert told == {"g": "id * 2", "h": "hex(id)"}
    assert lab.rows() == [("4", None, None)]
