"""Statements that no name tells apart: whatever they are about, rows after them show nothing hidden."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from building import record
from dts_records import sent
from test_gathered_barriers import ALL, LOG, delivered, stated

from worker.column_rules.plan import ShownBehind
from worker.configuration import Configuration
from worker.configuration.formats import formats_of
from worker.configuration.table_rules import OnFailure
from worker.fetching.barrier_tables import refusal
from worker.fetching.routing import UndecodableHalt
from worker.reloading.source_changes import ChangesOf, Unfollowable
from worker.units.chunk import BarrierChunk
from worker.units.work import Work

CHAIN = "RENAME TABLE users TO tmp, tmp TO people"
THREE = "RENAME TABLE users TO tmp, loaded TO users, TMP TO people"


def configured(*, gathered: bool, rest: bool = False) -> Configuration:
    into = "shops" if gathered else "shop_1"
    rules = [
        {"match": f"{into}.users", "columns": {"exclude": ["ssn"]}, **LOG},
        {"match": f"{into}.people", **LOG},
    ]
    return Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["cdc"]},
            "tables": [*rules, ALL] if rest else rules,
            "databases": {"shops": {"match": "shop_*.*"}} if gathered else {},
        }
    )


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("rest", [True, False])
@pytest.mark.parametrize(
    ("sql", "own"),
    [
        # A name in between, which no rule matches, or in another spelling.
        (CHAIN, "shop_1.tmp"),
        (THREE, "shop_1.tmp"),
        # Rows change their table without an event for each.
        ("ALTER TABLE people EXCHANGE PARTITION p WITH TABLE users", "shop_1.people"),
        ("ALTER TABLE users EXCHANGE PARTITION p WITH TABLE shop_1.people", "shop_1.users"),
        ("ALTER TABLE users CONVERT PARTITION p TO TABLE people", "shop_1.users"),
        ("ALTER TABLE people CONVERT TABLE users TO PARTITION p VALUES LESS THAN (9)", "shop_1.people"),
        # It ran in another database, some of whose tables it names without it.
        ("RENAME TABLE x TO y, shop_1.users TO shop_1.people", "crm.y"),
        ("RENAME TABLE `x` TO y, `shop_1`.`USERS` TO shop_1.People", "crm.y"),
    ],
)
def test_rows_of_both_tables_stop(sql: str, own: str, *, gathered: bool, rest: bool) -> None:
    delivery = delivered(
        configured(gathered=gathered, rest=rest), stated(sql, *own.split(".")[::-1]), on_undecodable="skip"
    )
    [(unit, refused)] = [part for part in delivery.parts if not isinstance(part[1], BarrierChunk)]
    _, fault = Work.of(unit, [refused]).decode(lambda *_: False) or (None, None)
    assert isinstance(fault, ShownBehind)
    into = "shops" if gathered else "shop_1"
    stopped = {to.table.label for to, _ in delivery.parts}
    assert stopped >= {f"{into}.users"} | ({f"{into}.people"} if "people" in sql.lower() else set())


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize(
    ("sql", "table"),
    [
        # Each ran in another database than its record's, which has a table of the name, too.
        ("RENAME TABLE shop_1.x TO crm.users, users TO crm.y, crm.y TO shop_1.people", "users"),
        ("RENAME TABLE shop_1.users TO crm.tmp, tmp TO y", "tmp"),
        ("RENAME TABLE shop_1.users TO CRM.tmp, tmp TO y", "tmp"),
        ("RENAME TABLE users TO CRM.people", "people"),
    ],
)
def test_a_name_without_its_database_is_not_one_that_the_statement_has_made(
    sql: str, table: str, *, gathered: bool
) -> None:
    canal = formats_of(configured(gathered=gathered, rest=True)).of("cdc")
    assert refusal(canal, stated(sql, table, "crm")) is not None


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("rest", [True, False])
@pytest.mark.parametrize("mode", get_args(OnFailure))
@pytest.mark.parametrize(
    "sql", ["RENAME TABLE x TO crm.y, users TO people", "RENAME TABLE crm.x TO crm.y, users TO z"]
)
def test_the_worker_stops_if_no_table_can_wait(
    sql: str, mode: OnFailure, *, gathered: bool, rest: bool
) -> None:
    """It ran in another database than that of its record, which Canal does not tell."""
    made = configured(gathered=gathered, rest=rest)
    with pytest.raises(
        UndecodableHalt, match=r"renames users to (people|z), and the statement does not name"
    ):
        delivered(made, stated(sql, "y", "crm"), on_undecodable=mode)


@pytest.mark.parametrize(
    ("match", "sql", "is_refused"),
    [
        (r"/(shop_1\.users|crm\.users)/", "ALTER TABLE users RENAME COLUMN ssn TO name", True),
        (r"/shop_1\.x|crm\.users/", "ALTER TABLE users RENAME COLUMN ssn TO name", True),
        (r"/(shop_1\.users|crm\.users)/", "ALTER TABLE users RENAME COLUMN id TO name", False),
        (r"/crm\.(users|b)/", "ALTER TABLE c RENAME COLUMN ssn TO name", False),
        ("*", "RENAME TABLE x TO y, users TO people", False),
        ("crm.users", "ALTER TABLE x EXCHANGE PARTITION p WITH TABLE users", True),
    ],
)
def test_of_an_untold_database_each_rule_counts_that_may_be_meant(
    match: str, sql: str, *, is_refused: bool
) -> None:
    made = Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["cdc"]},
            "tables": [{"match": match, "columns": {"exclude": ["ssn"]}, **LOG}, ALL],
        }
    )
    assert (refusal(formats_of(made).of("cdc"), stated(sql, "", "")) is not None) == is_refused


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize(("own", "database"), [("a", "shop_1"), ("", ""), ("", "crm")])
def test_a_statement_that_nobody_can_read_is_of_all_tables_that_it_names(
    own: str, database: str, *, gathered: bool
) -> None:
    made = configured(gathered=gathered)
    canal = formats_of(made).of("cdc")
    assert refusal(canal, stated("FROBNICATE TABLE a, b", own, database)) is None
    unreadable = stated("FROBNICATE TABLE a, `users`", own, database)
    fault = refusal(canal, unreadable)
    assert fault is not None
    assert fault.tables == ((database if own else "", "users"),)
    if own:
        parts = delivered(made, unreadable, on_undecodable="skip").parts
        assert [to.table.name for to, _ in parts] == ["users"]
    else:
        with pytest.raises(UndecodableHalt, match="column rules hide: its DDL cannot be read"):
            delivered(made, unreadable, on_undecodable="skip")


@pytest.mark.parametrize("name", ["all users", "2024"])
def test_an_unreadable_statement_may_name_a_table_that_needs_quotes(name: str) -> None:
    made = Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["cdc"]},
            "tables": [{"match": f"shop_1.{name}", "columns": {"exclude": ["ssn"]}, **LOG}],
        }
    )
    canal = formats_of(made).of("cdc")
    assert refusal(canal, stated(f"FROBNICATE TABLE a, `{name}`", "a")) is not None
    assert refusal(canal, stated("FROBNICATE TABLE a, `users`, 2024", "a")) is None


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("own", ["KİMLİK", "_KİMLİK_gho"])
def test_a_statement_may_spell_a_table_as_a_turkish_program_does(own: str, *, gathered: bool) -> None:
    """Servers that ignore case take its capital i with a dot for an i."""
    into = "shops" if gathered else "shop_1"
    rules = [{"match": f"{into}.kimlik", "columns": {"exclude": ["ssn"]}, **LOG}, ALL]
    made = configured(gathered=gathered).model_dump(include={"kafka", "databases"})
    given = Configuration.model_validate({**made, "tables": rules})
    delivery = delivered(given, stated(f"ALTER TABLE {own} RENAME COLUMN ssn TO name", own))
    assert f"{into}.{own.replace('İ', 'i').lower()}" in {to.table.label for to, _ in delivery.parts}
    assert refusal(formats_of(given).of("cdc"), stated(f"RENAME TABLE {own} TO people", "people")) is not None


@pytest.mark.parametrize("rest", [True, False])
def test_dts_tells_in_which_database_a_table_has_its_new_name(*, rest: bool) -> None:
    made = configured(gathered=False, rest=rest)
    dts = formats_of(made.model_copy(update={"format": "dts"})).of("cdc")
    for sql, is_refused in (
        ("ALTER TABLE crm.x RENAME TO people", False),
        ("ALTER TABLE crm.x RENAME TO users", rest),  # else no target has its rows
        ("ALTER TABLE shop_1.users RENAME TO people", True),
        ("ALTER TABLE shop_1.users RENAME people, ADD x int", True),
    ):
        ddl = {"operation": "DDL", "objectName": "shop_1", "fields": None, "afterImages": sql}
        assert (refusal(dts, sent(**ddl)) is not None) == is_refused
    ddl = {
        "operation": "DDL",
        "objectName": "crm",
        "fields": None,
        "afterImages": "ALTER TABLE shop_1.users RENAME x",
    }
    assert (refusal(dts, sent(**ddl)) is not None) == rest


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("sql", [CHAIN, "RENAME TABLE x TO y, shop_1.users TO shop_1.people"])
def test_a_reload_ends_at_such_a_statement_too(sql: str, *, gathered: bool) -> None:
    made, database = configured(gathered=gathered, rest=True), "shops" if gathered else "shop_1"
    told = stated(sql, "tmp") if sql == CHAIN else stated(sql, "y", "crm")
    with pytest.raises(Unfollowable, match="renames"):
        list(ChangesOf(made, made.tables[1], database, "people").of(told))
    others: Any = ChangesOf(made, made.tables[2], database, "others")
    assert list(others.of(told)) == []
    assert len(list(others.of(record(1, "others", database="shop_1")))) == 1
