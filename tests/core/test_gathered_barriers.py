"""Statements about several gathered tables: each one whose rows may show what is hidden stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from building import record

from offsets.restore import Start
from offsets.types import TopicPartition
from worker.column_rules.plan import ShownBehind
from worker.configuration import Configuration
from worker.configuration.formats import formats_of
from worker.configuration.table_rules import OnFailure
from worker.fetching.routing import Router, UndecodableHalt
from worker.formats.gathered import Places
from worker.observing.metrics import Metrics
from worker.reloading.source_changes import ChangesOf, Unfollowable
from worker.units.assigned_partition import Assignment
from worker.units.chunk import BarrierChunk
from worker.units.delivery import Delivery
from worker.units.table_book import TableBook
from worker.units.work import Work

LOG = {"handlers": [{"type": "log"}]}
USERS = {"match": "shops.users", "columns": {"exclude": ["ssn"]}, **LOG}
PEOPLE, ALL = {"match": "shops.people", **LOG}, {"match": "*", **LOG}
MULTIPLE = "RENAME TABLE a TO b, users TO people"
RENAMED = "ALTER TABLE users RENAME COLUMN ssn TO name"


def configured(*rules: dict[str, Any], match: str = "shop_*.*") -> Configuration:
    return Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["cdc"]},
            "tables": list(rules),
            "databases": {"shops": {"match": match}},
        }
    )


def stated(sql: str, table: str, database: str = "shop_1", **fields: Any) -> Any:
    ddl = {"database": database, "type": "RENAME", "isDdl": True, "sql": sql, "data": None}
    return record(0, table, **ddl | fields)


def delivered(made: Configuration, *records: Any, on_undecodable: OnFailure = "halt") -> Delivery:
    book, delivery = TableBook(made, lambda _: []), Delivery()
    start = Start("earliest", (), "initial", "a test")
    of = Assignment(TopicPartition("cdc", 0), 1, start, formats_of(made).of("cdc"))
    Router(book, Metrics(), on_undecodable=on_undecodable).route(of, list(records), delivery)
    return delivery


@pytest.mark.parametrize(
    ("rules", "sql", "own", "home", "others"),
    [
        # Of several renames, Canal names the first new table.
        ((USERS, PEOPLE), MULTIPLE, ("shop_1", "b"), "shops.users", {"shops.people"}),
        ((USERS, ALL), MULTIPLE, ("shop_1", "b"), "shops.b", {"shops.a", "shops.users", "shops.people"}),
        (
            (USERS, ALL),
            "RENAME TABLE crm.a TO crm.b, shop_1.users TO shop_1.people",
            ("crm", "b"),
            "crm.b",
            {"crm.a", "shops.users", "shops.people"},
        ),
        ((USERS, ALL), RENAMED.upper(), ("shop_1", "USERS"), "shops.USERS", {"shops.users"}),
    ],
)
def test_every_table_whose_rows_may_show_what_is_hidden_stops(
    rules: tuple[dict[str, Any], ...], sql: str, own: tuple[str, str], home: str, others: set[str]
) -> None:
    """Rows go to a gathered table by another name than the statement has."""
    delivery = delivered(configured(*rules), stated(sql, own[1], own[0]))
    parts = [(to, chunk) for to, chunk in delivery.parts if chunk.alone]
    [(unit, refused)] = [part for part in parts if not isinstance(part[1], BarrierChunk)]
    assert (unit.table.label, {to.table.label for to, _ in parts} - {home}) == (home, others)
    _, fault = Work.of(unit, [refused]).decode(lambda *_: False) or (None, None)
    assert isinstance(fault, ShownBehind)


@pytest.mark.parametrize("mode", get_args(OnFailure))
def test_a_statement_of_an_untold_database_may_rename_what_is_hidden_after_others(mode: OnFailure) -> None:
    untold = stated("RENAME TABLE a TO b, users TO people", "", "")
    with pytest.raises(
        UndecodableHalt, match=r"could show what column rules hide: the source renames users to people"
    ):
        delivered(configured(USERS, PEOPLE), untold, on_undecodable=mode)


def test_a_copy_of_a_gathered_table_has_its_rules() -> None:
    """gh-ost's copy contains its rows. The pattern may match the table alone."""
    made = configured(USERS, ALL, match="shop_*.users")
    assert [Places(made.databases).label(f"shop_1.{name}") for name in ("users", "_users_gho")] == [
        *("shops.users", "shop_1._users_gho")
    ]
    for name in ("_users_gho", "__users_20261101120000_del"):
        found = made.rule_for(f"shop_1.{name}")
        assert found is not None
        assert found.match == "shops.users"
    other = made.rule_for("crm._users_gho")
    assert other is not None
    assert other.match == "*"


@pytest.mark.parametrize(
    ("rules", "name", "home"),
    [
        ((USERS,), "_users_gho", "shops.users"),
        ((USERS,), "_USERS_gho", "shops.users"),
        ((USERS, ALL), "_users_gho", "shop_1._users_gho"),
        ((USERS, ALL), "_USERS_gho", "shop_1._USERS_gho"),
    ],
)
def test_a_statement_of_a_copy_may_show_what_the_gathered_table_hides(
    rules: tuple[dict[str, Any], ...], name: str, home: str
) -> None:
    made = configured(*rules, match="shop_*.users")
    delivery = delivered(made, stated(RENAMED.replace("users", name), name))
    [(unit, chunk)] = [part for part in delivery.parts if not isinstance(part[1], BarrierChunk)]
    assert unit.table.label == home
    _, fault = Work.of(unit, [chunk]).decode(lambda *_: False) or (None, None)
    assert isinstance(fault, ShownBehind)


@pytest.mark.parametrize("spelled", [str, str.upper])
def test_the_swap_of_a_copy_and_a_gathered_table_is_no_error(spelled: Callable[[str], str]) -> None:
    made = configured(USERS, ALL, match="shop_*.users")
    swap = spelled("RENAME TABLE users TO _users_del, _users_gho TO users")
    delivery = delivered(made, stated(swap, spelled("_users_del")))
    [(unit, chunk)] = [part for part in delivery.parts if not isinstance(part[1], BarrierChunk)]
    assert Work.of(unit, [chunk]).decode(lambda *_: False) is None


def test_a_database_whose_name_has_a_point_has_the_rules_too() -> None:
    canal = formats_of(configured(USERS, ALL, match="shop*.*")).of("cdc")
    with pytest.raises(ShownBehind):
        canal.decode(stated(RENAMED, "users", "shop.1"), [])


def test_what_a_statement_does_is_told_under_rules_too() -> None:
    """Only of records that may contain what is hidden, errors do not quote anything."""
    emptied = stated("", "users", type="TRUNCATE")
    delivery = delivered(configured(USERS, ALL), emptied)
    [(unit, chunk)] = delivery.parts
    _, fault = Work.of(unit, [chunk]).decode(lambda *_: False) or (None, None)
    assert "TRUNCATE of shop_1.users" in str(fault)


@pytest.mark.parametrize(
    ("sql", "own", "database"),
    [
        ("TRUNCATE TABLE b", "b", "shop_1"),
        (RENAMED, "users", "shop_1"),
        ("RENAME TABLE a TO b, _people_gho TO people", "b", "shop_1"),
        (RENAMED, "users", "crm"),
    ],
)
def test_a_reload_does_not_ask_for_statements_of_others(sql: str, own: str, database: str) -> None:
    made = configured(PEOPLE, USERS, {**USERS, "match": "crm.users"}, ALL)
    changes = ChangesOf(made, made.tables[0], "shops", "people")
    assert list(changes.of(stated(sql, own, database))) == []
    assert len(list(changes.of(record(1, "people", database="shop_1")))) == 1


@pytest.mark.parametrize("sql", [MULTIPLE, MULTIPLE.upper()])
def test_a_reload_reads_no_rows_behind_a_statement_that_shows_what_is_hidden(sql: str) -> None:
    made = configured(PEOPLE, USERS, ALL)
    changes = ChangesOf(made, made.tables[0], "shops", "people")
    with pytest.raises(Unfollowable, match=r"renames shop_1\.(users|USERS)"):
        list(changes.of(stated(sql, sql.split()[4].strip(","))))
