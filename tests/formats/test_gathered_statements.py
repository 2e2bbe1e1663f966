"""Statements that change gathered tables and others at once."""

from __future__ import annotations

from typing import Any

import pytest
from canal_messages import message

from handlers import Change
from worker.configuration import Configuration
from worker.configuration.formats import formats_of
from worker.fetching.barrier_tables import refusal
from worker.formats.interface import Apart, Skip, UndecodableRecord

LOG = {"handlers": [{"type": "log"}]}
CONFIGURATION: dict[str, Any] = {
    "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["cdc"]},
    "tables": [{"match": "shop*.*", **LOG}, {"match": "crm.*", **LOG}],
    "databases": {"shops": {"match": "/shop_[0-9]\\.[a-z]+/"}},
}


def changes_of(database: str, table: str, sql: str) -> list[Change]:
    made, changes = Configuration.model_validate(CONFIGURATION), list[Change]()
    record = message(database=database, table=table, type="ERASE", isDdl=True, sql=sql, data=None)
    formats_of(made).of("cdc").decode(record, changes)
    return changes


@pytest.mark.parametrize(
    ("database", "table", "sql", "other"),
    [
        ("shop_1", "a", "DROP TABLE shop_1.a, crm.b", "crm.b"),
        ("shop_1", "a", "DROP TABLE crm.b, a", "crm.b"),
        # The target's table of this name has the rows of all databases.
        ("crm", "b", "DROP TABLE b, shops.a", "shops.a"),
        ("crm", "b", "DROP TABLE b, SHOPS.A", "SHOPS.A"),
        ("crm", "b", "RENAME TABLE shops.a TO crm.b", "shops.a"),
        ("crm", "b", "RENAME TABLE crm.b TO shops.a", "shops.a"),
        ("crm", "b", "CREATE TABLE b LIKE shops.a", "shops.a"),
        # Servers that ignore case log a statement as the user spelled it.
        ("shop_1", "a", "DROP TABLE a, CRM.B", "CRM.B"),
        ("SHOP_1", "A", "DROP TABLE A, CRM.B", "CRM.B"),
        # Or the target's crm.b would keep rows of another table, or lack those that are now there.
        ("shop_1", "a", "RENAME TABLE crm.b TO shop_1.a", "crm.b"),
        ("shop_1", "x", "RENAME TABLE shop_1.a TO shop_1.x, crm.b TO crm.c", "crm.b"),
        ("shop_1", "a", "ALTER TABLE shop_1.a RENAME TO crm.b", "crm.b"),
        ("crm", "b", "RENAME TABLE shop_1.a TO crm.b", "shop_1.a"),
        ("crm", "b", "RENAME TABLE crm.b TO SHOP_1.A", "SHOP_1.A"),
    ],
)
def test_a_statement_of_both_is_an_error(database: str, table: str, sql: str, other: str) -> None:
    with pytest.raises(UndecodableRecord, match=rf"changes {other}, too"):
        changes_of(database, table, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE shop_1.a, shop_2.a, shops.a",
        "DROP TABLE a, other.b",  # no rule has other.b
        "RENAME TABLE a TO _a_del, _a_gho TO a",
        "CREATE TABLE a LIKE crm.b",
        "DROP TABLE SHOP_1.A, Shop_2.a",
        "DROP TABLE a, ",
        "DROP TABLE a",
    ],
)
def test_a_statement_of_gathered_tables_alone_is_skipped(sql: str) -> None:
    assert changes_of("shop_1", "a", sql) == []


@pytest.mark.parametrize("sql", ["DROP TABLE b, crm.c", "RENAME TABLE b TO c", "DROP TABLE b, "])
def test_a_statement_of_other_tables_is_handed_on(sql: str) -> None:
    assert [change.sql for change in changes_of("crm", "b", sql)] == [sql]


@pytest.mark.parametrize(("database", "table"), [("SHOP_1", "A"), ("shop_1", "A"), ("Shop_1", "a")])
def test_a_statement_in_capitals_is_of_the_table_of_the_rows(database: str, table: str) -> None:
    """Or the rows of an emptied table would stay, and nothing would say why."""
    made, sql = Configuration.model_validate(CONFIGURATION), f"TRUNCATE TABLE {table}"
    emptied = message(database=database, table=table, type="TRUNCATE", isDdl=True, sql=sql, data=None)
    canal = formats_of(made).of("cdc")
    route, slow = canal.route(emptied.value() or b""), canal.explain(emptied)
    assert not isinstance(slow, Skip | Apart)
    assert {(each.database, each.table, each.alone) for each in (route, slow)} == {("shops", "a", True)}
    with pytest.raises(UndecodableRecord, match=r"TRUNCATE of shop_1\.a"):
        canal.decode(emptied, [])
    assert changes_of(database, table, f"DROP TABLE {table}") == []
    # Rows are logged as the table was created: these are of other tables.
    row = message(database="SHOP_1", table="A")
    assert canal.route(row.value() or b"").database == "SHOP_1"
    assert [change.op for change in changes_of("crm", "B", "DROP TABLE B")] == ["ddl"]


@pytest.mark.parametrize("match", ["shops.users", "crm.users"])
def test_a_statement_of_an_untold_database_may_show_what_any_rule_hides(match: str) -> None:
    """Of what Canal's parser does not understand its messages name no database."""
    hiding = {"match": match, "columns": {"exclude": ["ssn"]}, **LOG}
    made = Configuration.model_validate({**CONFIGURATION, "tables": [hiding, {"match": "*", **LOG}]})
    canal = formats_of(made).of("cdc")
    for column, is_hidden in (("ssn", True), ("total", False)):
        sql = f"ALTER TABLE users RENAME COLUMN {column} TO name"
        untold = message(database="", table="", type="QUERY", isDdl=True, sql=sql, data=None)
        with pytest.raises(UndecodableRecord, match="does not name the database"):
            canal.explain(untold)
        refused = refusal(canal, untold)
        assert (refused is not None) == is_hidden
        assert refused is None or refused.tables == (("", "users"),)


@pytest.mark.parametrize(
    "sql", ["/* by cron */ TRUNCATE TABLE a", "/*!50000 TRUNCATE TABLE a */", "TRUNCATE a"]
)
def test_a_truncate_that_its_record_does_not_tell_is_an_error_too(sql: str) -> None:
    """Debezium's and Canal's records of some have only the statement."""
    with pytest.raises(UndecodableRecord, match=r"TRUNCATE of shop_1\.a"):
        changes_of("shop_1", "a", sql)
