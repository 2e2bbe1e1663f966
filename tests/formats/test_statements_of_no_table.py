"""Statements about users, rights, views and programs: they change no table, and may hold what is hidden."""

from __future__ import annotations

import pytest

from handlers.mysql.statement_of_change import shown
from worker.formats.statements import is_of_no_table


@pytest.mark.parametrize(
    "sql",
    [
        "GRANT ALL ON shop.orders TO 'a'@'%' IDENTIFIED BY 'secret'",
        "  /* by ops */ -- twice\n# thrice\n revoke SELECT ON shop.orders FROM a",
        "/*!50003 CREATE USER a IDENTIFIED BY 'secret' */",
        "/*M!100100 ALTER USER a IDENTIFIED BY 'secret' */",
        "CREATE OR REPLACE ROLE a",
        "SET PASSWORD FOR a = 'secret'",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (PASSWORD 'secret')",
        "CHANGE MASTER TO MASTER_PASSWORD='secret'",
        "FLUSH PRIVILEGES",
        "CREATE VIEW v AS SELECT id FROM users WHERE mail = 'secret'",
        "create or replace algorithm=merge definer=`root`@`%` sql security invoker view v AS SELECT 1",
        "ALTER VIEW v AS SELECT 'secret'",
        "DROP VIEW IF EXISTS v",
        "CREATE DEFINER = CURRENT_USER TRIGGER t BEFORE INSERT ON users FOR EACH ROW SET NEW.mail = 'secret'",
        "CREATE OR REPLACE AGGREGATE FUNCTION f(a INT) RETURNS INT RETURN 1",
        "DROP PROCEDURE p",
        "ALTER EVENT e DISABLE",
    ],
)
def test_a_statement_about_users_or_programs_is_of_no_table(sql: str) -> None:
    assert is_of_no_table(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "CREATE TABLE `grant` (user int)",
        "/* GRANT */ ALTER TABLE users ADD role int",
        "-- CREATE USER\nDROP TABLE users",
        "SET STATEMENT max_statement_time=60 FOR ALTER TABLE users ADD a int",
        "/* not closed CREATE USER a",
        "RENAME TABLE user TO users",
        "CREATE TABLE view (trigger_ int)",
        "ALTER TABLE event ADD view int",
    ],
)
def test_other_statements_may_be_of_tables(sql: str) -> None:
    assert not is_of_no_table(sql)


def test_a_statement_is_shown_without_its_passwords() -> None:
    sql = """CREATE TABLE f (id int) ENGINE=FEDERATED CONNECTION="mysql://u:se""cret@h/d/t" COMMENT 'kept'"""
    assert shown(sql) == "CREATE TABLE f (id int) ENGINE=FEDERATED CONNECTION='***' COMMENT 'kept'"
    assert shown("x IDENTIFIED WITH p BY 'it''s \\' secret' y") == "x IDENTIFIED WITH p BY '***' y"
