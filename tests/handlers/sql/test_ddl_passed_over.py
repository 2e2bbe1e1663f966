"""Statements that are switched off, need nothing done, or are not understood."""

from __future__ import annotations

import pytest
from ddl_lab import DDLLab

from handlers import Rejected
from handlers.mysql.ddl.rules import DDLRules

SWITCHES = [
    ("create_tables", "CREATE TABLE u (id int PRIMARY KEY)"),
    ("drop_tables", "DROP TABLE t"),
    ("truncate", "TRUNCATE TABLE t"),
    ("rename_tables", "RENAME TABLE t TO v"),
    ("add_columns", "ALTER TABLE t ADD c int"),
    ("drop_columns", "ALTER TABLE t DROP a"),
    ("rename_columns", "ALTER TABLE t RENAME COLUMN a TO c"),
    ("retype_columns", "ALTER TABLE t MODIFY a bigint, DROP PRIMARY KEY"),
]


@pytest.mark.parametrize(("switch", "sql"), SWITCHES, ids=[one[0] for one in SWITCHES])
def test_what_is_switched_off_is_passed_over(lab: DDLLab, switch: str, sql: str) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int)")
    lab.put({"id": "int", "a": "int"}, {"id": 1, "a": 2})
    assert lab.follow(sql, rules=DDLRules.model_validate({switch: False})).done == ()
    assert lab.follow(sql, rules=DDLRules.model_validate(False)).done == ()
    others = {name: False for name in DDLRules.model_fields if name != switch}
    assert lab.follow(sql, rules=DDLRules.model_validate(others)).done != ()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX i ON t (a)",
        "ALTER TABLE t COMMENT 'hello', ADD INDEX ix2 (a), ALTER COLUMN a SET DEFAULT 1",
        "ALTER TABLE t TRUNCATE PARTITION p0",
        "ALTER TABLE no_such_table ADD a int, DROP b, DROP PRIMARY KEY",
        "DROP TABLE IF EXISTS no_such_table",
        "RENAME TABLE no_such_table TO another",
        "CREATE TABLE u LIKE no_such_table",
    ],
)
def test_nothing_is_done_where_nothing_is_to_do(lab: DDLLab, sql: str) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int)")
    assert lab.follow(sql).done == ()


def test_a_statement_that_cannot_be_read_is_rejected_with_its_text(lab: DDLLab) -> None:
    with pytest.raises(Rejected, match=r"cannot parse DDL of db\.t: .*: ALTER TABLE t FROBNICATE a"):
        lab.follow("ALTER TABLE t FROBNICATE a")


def test_a_statement_of_which_a_clause_cannot_be_read_does_nothing(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a varchar(9))")
    with pytest.raises(Rejected):
        lab.follow("ALTER TABLE t DROP a, ADD b int NOT NULL DEFAULT 7, FROBNICATE", times=1)
    assert lab.columns() == ["id", "a"]
