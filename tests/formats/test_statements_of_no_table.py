"""Statements about users, rights, views and programs: they change no table, and may hold what is hidden."""

from __future__ import annotations

import canal_messages as canal
import canal_packets as packets
import debezium_messages as debezium
import dts_records as dts
import maxwell_messages as maxwell
import pytest

from handlers import Change
from handlers.mysql.statement_of_change import shown
from worker.formats.canal.format import Canal
from worker.formats.debezium.format import Debezium
from worker.formats.dts.format import DTS
from worker.formats.images import is_of_no_table
from worker.formats.interface import Format, Record
from worker.formats.maxwell.format import Maxwell


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
        "CREATE/* by ops */USER a IDENTIFIED BY 'secret'",
        "CREATE /* VIEW */ -- once\n OR # twice\n REPLACE VIEW v AS SELECT 'secret'",
        "DROP /*!50001 VIEW */ v",
        "/*!50001 CREATE ALGORITHM = /* a */ MERGE */\n/*!50013 DEFINER=`a b`@`%` SQL SECURITY DEFINER */\n"
        "/*!50001 VIEW v AS SELECT 'secret' */",
        "/*!50003 CREATE*/ /*!50017 DEFINER='a b'@`localhost`*/ /*!50003 TRIGGER t BEFORE INSERT ON users "
        "FOR EACH ROW SET NEW.mail = 'secret' */",
        "SET /* for a */ PASSWORD = 'secret'",
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
        "CREATE /* VIEW v */ TABLE t (id int)",
        "CREATE /*!50001 TABLE */ view (id int)",
        "DROP /* EVENT e",
        "ALTER TABLE event ADD view int",
    ],
)
def test_other_statements_may_be_of_tables(sql: str) -> None:
    assert not is_of_no_table(sql)


_GRANT = "GRANT ALL ON shop.* TO a IDENTIFIED BY 'secret'"


@pytest.mark.parametrize(
    ("format_", "record"),
    [
        (Canal(), canal.message(isDdl=True, type="QUERY", sql=_GRANT, data=None)),
        (Canal(), packets.sent(packets.packet(packets.ddl("orders", _GRANT)))),
        (Debezium(), debezium.ddl(_GRANT, {"type": "ALTER", "id": '"shop"."orders"'})),
        (Maxwell(), maxwell.ddl("table-alter", _GRANT)),
        (DTS(), dts.sent(operation="DDL", afterImages=_GRANT)),
    ],
    ids=["canal", "canal's packets", "debezium", "maxwell", "dts"],
)
def test_a_statement_of_no_table_is_no_change_whoever_reads_it(format_: Format, record: Record) -> None:
    changes: list[Change] = []
    format_.decode(record, changes)
    assert changes == []


def test_a_statement_is_shown_without_its_passwords() -> None:
    sql = """CREATE TABLE f (id int) ENGINE=FEDERATED CONNECTION="mysql://u:se""cret@h/d/t" COMMENT 'kept'"""
    assert shown(sql) == "CREATE TABLE f (id int) ENGINE=FEDERATED CONNECTION='***' COMMENT 'kept'"
    assert shown("x IDENTIFIED WITH p BY 'it''s \\' secret' y") == "x IDENTIFIED WITH p BY '***' y"
