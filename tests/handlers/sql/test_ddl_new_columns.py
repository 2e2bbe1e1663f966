"""Columns added in each target; the same statement again changes nothing."""

from __future__ import annotations

import pytest
from ddl_lab import DDLLab

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


def test_a_generated_column_is_computed_for_the_rows_that_are_there(lab: DDLLab) -> None:
    types = {"id": "int", "total": "decimal(12,2)", "n": "int"}
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, total decimal(12,2), n int)")
    big = 2**31 - 1
    lab.put(types, {"id": 1, "total": "9999999999.99", "n": big}, {"id": 2, "total": None, "n": None})
    lab.follow(
        "ALTER TABLE t ADD g decimal(13,2) GENERATED ALWAYS AS (`total`*2), ADD h bigint AS (n + n - (-1))"
    )
    assert lab.rows() == [
        ("1", "9999999999.99", str(big), "19999999999.98", str(2 * big + 1)),
        ("2",) + (None,) * 4,
    ]


def test_a_generated_column_that_is_never_null_is_computed_too(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 4})
    lab.follow("ALTER TABLE t ADD g int AS (id * 2) STORED NOT NULL, ADD h char(9) AS (hex(id)) NOT NULL")
    assert lab.rows() == [("4", "8", None)]


def test_a_generated_column_is_computed_as_mysql_does(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, f float)")
    lab.put({"id": "int", "f": "float"}, {"id": 5, "f": 1.1})
    lab.follow("ALTER TABLE t ADD g bigint AS (ID * id), ADD h double AS (f * f), ADD i int AS (id * 0.5)")
    [(_, _, *found)] = lab.rows()
    square = 1.21 if lab.dialect == "sqlite" else 1.210000052452088  # of the FLOAT; SQLite has no such type
    assert [float(one or 0) for one in found] == [25, pytest.approx(square, rel=1e-12), 3]


def test_a_generated_column_whose_expression_is_not_understood_is_null(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t ADD g varchar(80) AS (concat(id, '-x')) STORED, ADD h int AS (id DIV 2)")
    lab.follow("ALTER TABLE t ADD i int AS (id * gone)")
    assert lab.rows() == [("1", None, None, None)]
