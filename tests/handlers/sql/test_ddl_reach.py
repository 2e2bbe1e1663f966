"""A statement changes tables that the rule leads to the handler and that it keeps, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sql_lab import SqlLab, orders
from structlog.testing import capture_logs

from handlers import Batch
from handlers.testing import make_batch

ROW = {"id": 1, "note": "a"}
SHOP: Callable[[str], bool] = lambda table: table.startswith("shop.")  # noqa: E731


def statement(sql: str, offset: int, table: str = "shop.orders") -> Batch:
    return make_batch(table, [{"sql": sql}], offset=offset)


def refused(logs: list[object]) -> list[str]:
    return [log["because"] for log in logs if isinstance(log, dict) and log["event"] == "ddl_refused"]


@pytest.mark.parametrize(
    "sql_text",
    [
        "DROP TABLE crm.salaries",
        "TRUNCATE TABLE crm.salaries",
        "ALTER TABLE crm.salaries DROP COLUMN amount",
        "ALTER TABLE crm.salaries MODIFY amount varchar(3)",
        "RENAME TABLE crm.salaries TO shop.salaries",
        "RENAME TABLE shop.orders TO crm.orders",
        "DROP TABLE shop.nobodys",
        "TRUNCATE TABLE shop.nobodys",
        "ALTER TABLE shop.nobodys RENAME TO shop.ours",
        "CREATE TABLE crm.new (id int)",
        "CREATE TABLE shop.copy LIKE crm.salaries",
        "CREATE TABLE shop.copy (LIKE shop.nobodys)",
    ],
)
def test_no_statement_reaches_beyond_what_its_handler_keeps(sql: SqlLab, sql_text: str) -> None:
    for table in ("crm.salaries", "shop.nobodys"):
        sql.make(table, "id int PRIMARY KEY, amount int")
        sql.run(f"INSERT INTO {sql.ref(table)} VALUES (7, 100)")
    with sql.handler(handles=SHOP) as handler, capture_logs() as logs:
        handler.handle(orders(ROW, offset=0))
        handler.handle(statement(sql_text, 1))
        handler.handle(orders({"id": 2, "note": "b"}, offset=2))
    assert sql.rows("crm.salaries") == sql.rows("shop.nobodys") == [{"id": 7, "amount": 100}]
    assert [row["id"] for row in sql.rows()] == [1, 2]
    assert not sql.has("crm.new")
    assert not sql.has("shop.copy")
    (why,) = refused(logs)
    assert why.startswith(("no rule routes ", "this handler has written no row of "))


def test_of_several_tables_those_within_reach_are_dropped(sql: SqlLab) -> None:
    sql.make("crm.salaries", "id int PRIMARY KEY")
    with sql.handler(handles=SHOP) as handler, capture_logs() as logs:
        handler.handle(orders(ROW, offset=0))
        handler.handle(orders(ROW, offset=0, table="shop.items"))
        handler.handle(statement("DROP TABLE shop.orders, crm.salaries, shop.items", 1))
    assert refused(logs) == ["no rule routes crm.salaries to this handler"]
    assert sql.has("crm.salaries")
    assert not sql.has("shop.orders")
    assert not sql.has("shop.items")


def test_a_table_that_binlane_did_not_make_is_dropped_only_where_that_is_set(
    sql: SqlLab,
) -> None:
    sql.make("shop.orders", "id int PRIMARY KEY, note varchar(9)")
    with sql.handler() as handler, capture_logs() as logs:
        handler.handle(orders(ROW, offset=0))
        handler.handle(statement("DROP TABLE IF EXISTS orders", 1))
        handler.handle(statement("CREATE TABLE orders (id int PRIMARY KEY)", 2))
    assert refused(logs) == ["binlane did not create this table; to drop it, set ddl.drop_tables: true"]
    assert sql.rows() == [ROW]
    with sql.handler(ddl={"drop_tables": True}) as handler:
        handler.handle(statement("DROP TABLE orders", 3))
    assert not sql.has("shop.orders")


@pytest.mark.parametrize("first", ["CREATE TABLE orders (id int PRIMARY KEY, note text)", None])
def test_what_binlane_made_it_drops_also_under_another_name(sql: SqlLab, first: str | None) -> None:
    with sql.handler() as handler:
        handler.handle(orders(ROW, offset=0) if first is None else statement(first, 0))
    with sql.handler() as handler:
        handler.handle(statement("ALTER TABLE orders RENAME TO old_orders", 1))
        handler.handle(statement("DROP TABLE old_orders", 2, "shop.old_orders"))
    assert not sql.has("shop.old_orders")


def test_a_statement_that_comes_twice_makes_nothing_somebody_elses(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(ROW, offset=0))
        for offset in (1, 2):
            handler.handle(statement("RENAME TABLE orders TO old_orders", offset, "shop.old_orders"))
        handler.handle(statement("DROP TABLE old_orders", 3, "shop.old_orders"))
    assert not sql.has("shop.old_orders")


def test_a_table_made_by_hand_after_binlanes_was_dropped_is_none_of_its_own(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(ROW, offset=0))
        handler.handle(statement("DROP TABLE orders", 1))
        sql.make("shop.orders", "id int PRIMARY KEY, note varchar(9)")
        handler.handle(statement("DROP TABLE orders", 2))
    assert sql.has("shop.orders")


def test_tables_that_swap_names_are_all_within_reach(sql: SqlLab) -> None:
    with sql.handler(handles=SHOP) as handler, capture_logs() as logs:
        handler.handle(orders(ROW, offset=0))
        handler.handle(orders({"id": 2, "note": "new"}, offset=0, table="shop.orders_new"))
        swap = "RENAME TABLE orders TO orders_old, orders_new TO orders, orders_old TO orders_new"
        handler.handle(statement(swap, 1))
    assert not refused(logs)
    assert [row["id"] for row in sql.rows()] == [2]
    assert [row["id"] for row in sql.rows("shop.orders_new")] == [1]
