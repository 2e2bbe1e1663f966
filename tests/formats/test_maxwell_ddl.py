"""Maxwell's DDL records: the statement of each, and what is learned of the tables."""

from __future__ import annotations

from typing import Any

import pytest
from captured import CapturedRecord
from maxwell_messages import ORDERS, column, ddl, decode, definition, knowing, row, statement

from worker.formats.interface import Skip
from worker.formats.maxwell.format import Maxwell

ID = column("id", "int", signed=True)
SWAP = "RENAME TABLE a TO b, c TO a"


def table(name: str, *columns: dict[str, Any], database: str = "shop") -> Any:
    return definition(name, ID, *columns, database=database)


def sql_of(record: CapturedRecord) -> str | None:
    (change,) = decode(record)
    return change.sql


def types(format_: Maxwell, at: str, table_name: str = "orders") -> Any:
    (change,) = decode(row(table=table_name, position=at, data={"id": 1}), format_)
    return change.types


@pytest.mark.parametrize("type_", ["table-create", "table-alter", "table-drop"])
def test_ddl_of_a_table_is_one_change_with_its_statement_and_stands_alone(type_: str) -> None:
    record = ddl(type_, "A STATEMENT")
    (change,) = decode(record)
    assert (change.op, change.sql, change.before, change.after) == ("ddl", "A STATEMENT", None, None)
    assert (change.source_time_ms, change.transaction, change.key, change.types) == (
        1763000000999,
        None,
        None,
        None,
    )
    route = Maxwell().explain(record)
    assert not isinstance(route, Skip)
    assert (route.database, route.table, route.alone) == ("shop", "orders", True)
    with pytest.raises(ValueError, match=r"."):
        Maxwell().route(record.value() or b"")


def test_an_altered_table_is_routed_by_the_name_it_has_after() -> None:
    record = ddl("table-alter", "ALTER TABLE a RENAME b", before=table("a"), after=table("b", database="crm"))
    route = Maxwell().explain(record)
    assert not isinstance(route, Skip)
    assert (route.database, route.table) == ("crm", "b")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("RENAME TABLE a TO b", "RENAME TABLE `shop`.`a` TO `crm`.`b`"),
        ("/* why */ rename tables x to y, a to crm.b", "RENAME TABLE `shop`.`a` TO `crm`.`b`"),
        ("ALTER TABLE a RENAME TO crm.b", "RENAME TABLE `shop`.`a` TO `crm`.`b`"),
        ("alter table `a` rename `b`", "RENAME TABLE `shop`.`a` TO `crm`.`b`"),
        ("ALTER TABLE shop.`a` RENAME AS `crm`.b", "RENAME TABLE `shop`.`a` TO `crm`.`b`"),
        ("ALTER TABLE a RENAME = crm.b -- done", "RENAME TABLE `shop`.`a` TO `crm`.`b`"),
        ("ALTER TABLE a ADD x int, RENAME crm.b", "ALTER TABLE `shop`.`a` ADD x int, RENAME crm.b"),
        ("ALTER TABLE `a` ADD x int, RENAME crm.b", "ALTER TABLE `shop`.`a` ADD x int, RENAME crm.b"),
        ("ALTER TABLE shop.a ADD x int, RENAME crm.b", "ALTER TABLE shop.a ADD x int, RENAME crm.b"),
        ("ALTER TABLE a COMMENT 'RENAME', RENAME b", "RENAME TABLE `shop`.`a` TO `crm`.`b`"),
        ("ALTER IGNORE TABLE a ADD x int, RENAME b", "ALTER IGNORE TABLE `shop`.`a` ADD x int, RENAME b"),
        ("ALTER TABLE/* c */a ADD x int, RENAME b", "ALTER TABLE/* c */`shop`.`a` ADD x int, RENAME b"),
    ],
)
def test_a_statement_that_moves_a_table_names_where_from_and_where_to(sql: str, expected: str) -> None:
    assert sql_of(ddl("table-alter", sql, before=table("a"), after=table("b", database="crm"))) == expected


def test_a_statement_that_renames_several_tables_is_run_one_by_one() -> None:
    first = ddl("table-alter", SWAP, before=table("a"), after=table("b"))
    second = ddl("table-alter", SWAP, before=table("c"), after=table("a"))
    assert [sql_of(first), sql_of(second)] == [
        "RENAME TABLE `shop`.`a` TO `shop`.`b`",
        "RENAME TABLE `shop`.`c` TO `shop`.`a`",
    ]


def test_names_with_backticks_are_quoted() -> None:
    record = ddl("table-alter", "RENAME TABLE x TO y", before=table("a`b"), after=table("c"))
    assert sql_of(record) == "RENAME TABLE `shop`.`a``b` TO `shop`.`c`"


@pytest.mark.parametrize("sql", ["ALTER TABLE orders RENAME COLUMN a TO b", "ALTER TABLE orders ADD x int"])
def test_a_statement_that_moves_no_table_stays_as_it_is(sql: str) -> None:
    assert sql_of(ddl("table-alter", sql, before=table("orders"), after=table("orders"))) == sql


# ---- what is learned


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE orders ADD d decimal(5,2) AFTER id, ADD b binary(16)", ("decimal(5,2)", "binary(16)")),
        (
            "ALTER TABLE orders ADD (`d` NUMERIC(5, 2) UNSIGNED, `b` binary)",
            ("decimal(5,2) unsigned", "binary(1)"),
        ),
        ("ALTER TABLE orders CHANGE x d fixed (9), CHANGE d b BINARY ( 3 )", ("decimal(9,0)", "binary(3)")),
        ("ALTER TABLE orders /*!50000 ADD d decimal(5,2) */", ("decimal(5,2)", "binary")),
        ('ALTER ONLINE TABLE orders ADD "d" DEC(5,2) ZEROFILL', ("decimal(5,2) unsigned", "binary")),
        ("ALTER TABLE orders COMMENT 'd decimal(5,2)' -- b binary(4)", ("decimal", "binary")),
        ("ALTER TABLE orders ADD d decimal", ("decimal(10,0)", "binary")),
    ],
)
def test_sizes_are_those_of_the_statement(sql: str, expected: tuple[str, str]) -> None:
    made = table("orders", column("d", "decimal"), column("b", "binary", charset="binary"))
    format_ = knowing(ddl("table-alter", sql, before=table("orders"), after=made))
    found = types(format_, "b.1:9")
    assert (found["d"], found["b"]) == expected


def test_sizes_that_the_statement_does_not_name_are_those_before_it() -> None:
    after = [column("id", "bigint"), column("sum", "decimal"), column("note", "varchar"), column("x", "int")]
    altered = ddl(
        "table-alter",
        "ALTER TABLE orders RENAME COLUMN total TO sum, ADD x int",
        at="b.1:50",
        offset=1,
        before=definition(
            "orders", column("id", "bigint"), column("total", "decimal"), column("note", "varchar")
        ),
        after=definition("orders", *after),
    )
    format_ = knowing(ORDERS, altered)
    assert types(format_, "b.1:49") == {"id": "bigint", "total": "decimal(10,2)", "note": "varchar(20)"}
    assert types(format_, "b.1:50") == {
        "id": "bigint",
        "sum": "decimal(10,2)",
        "note": "varchar(20)",
        "x": "int",
    }


def test_a_size_does_not_outlive_its_type() -> None:
    altered = ddl(
        "table-alter",
        "ALTER TABLE orders MODIFY total varchar(7)",
        at="b.1:50",
        offset=1,
        before=definition("orders", column("id", "bigint"), column("total", "decimal")),
        after=definition(
            "orders", column("id", "bigint"), column("total", "varchar"), column("note", "char")
        ),
    )
    assert types(knowing(ORDERS, altered), "b.1:50") == {
        "id": "bigint",
        "total": "varchar(7)",
        "note": "char",
    }


@pytest.mark.parametrize("like", ["LIKE orders", "like `shop`.`orders`", "(LIKE orders)"])
def test_a_table_like_another_has_its_sizes(like: str) -> None:
    copy = ddl(
        "table-create",
        f"CREATE TABLE IF NOT EXISTS shop.copied {like}",
        at="b.1:50",
        offset=1,
        after=definition("copied", column("id", "bigint"), column("total", "decimal")),
    )
    assert types(knowing(ORDERS, copy), "b.1:60", "copied") == {"id": "bigint", "total": "decimal(10,2)"}


def test_a_swap_of_names_swaps_the_definitions_however_often_it_is_learned() -> None:
    decimal = column("d", "decimal")
    format_ = Maxwell()
    records = [
        statement("CREATE TABLE a (id int, d decimal(3,1))", ID, decimal, table="a", at="b.1:1"),
        statement("CREATE TABLE c (id int, d decimal(9,3))", ID, decimal, table="c", at="b.1:2"),
        *(
            ddl(
                "table-alter",
                "RENAME TABLE a TO b, c TO a, b TO c",
                at="b.1:50",
                before=table(old, decimal),
                after=table(new, decimal),
            )
            for old, new in (("a", "b"), ("c", "a"), ("b", "c"))
        ),
    ]
    numbered = [CapturedRecord("d", 0, at, 0, None, one.value(), []) for at, one in enumerate(records)]
    for record in numbered * 2:
        format_.learn(record)
    assert types(format_, "b.1:49", "a")["d"] == types(format_, "b.1:51", "c")["d"] == "decimal(3,1)"
    assert types(format_, "b.1:49", "c")["d"] == types(format_, "b.1:51", "a")["d"] == "decimal(9,3)"
    assert types(format_, "b.1:51", "b") is None


def test_a_table_older_than_the_topic_was_until_its_first_statement_what_that_found() -> None:
    altered = ddl(
        "table-alter",
        "ALTER TABLE orders DROP x",
        at="b.2:50",
        before=table("orders", column("x", "date")),
        after=table("orders"),
    )
    format_ = knowing(altered)
    assert types(format_, "b.1:4") == {"id": "int", "x": "date"}
    assert types(format_, "b.2:50") == {"id": "int"}


def test_a_dropped_table_has_no_types_until_it_is_made_again() -> None:
    dropped = ddl("table-drop", "DROP TABLE orders", at="b.1:50", offset=1)
    format_ = knowing(ORDERS, dropped)
    assert types(format_, "b.1:49") is not None
    assert types(format_, "b.1:50") is None
    again = statement("CREATE TABLE orders (id int)", ID, at="b.1:70")
    format_.learn(CapturedRecord("d", 0, 9, 0, None, again.value(), []))
    assert types(format_, "b.1:70") == {"id": "int"}
