"""A table of the target is of one source table, unless the options lead several into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa
from reload_lab import batch, reloading
from servers.mariadb_server import MariaDBServer
from sql_lab import SqlLab, orders

from handlers import Batch, HandlerContext, Rejected
from handlers.reloading import Refused
from handlers.sql import SqlHandler
from handlers.sql.handler import DatabaseError
from handlers.testing import make_batch

MakeLab = Callable[[str], SqlLab]
ROW = {"id": 1, "note": "a"}


class _WithoutCase(MariaDBServer):
    settings: ClassVar[dict[str, str]] = {**MariaDBServer.settings, "lower-case-table-names": "1"}


@pytest.fixture(scope="module")
def without_case() -> Iterator[str]:
    server = _WithoutCase()
    server.start()
    yield server.new_database("target")
    server.close()


@pytest.fixture(params=["sqlite", "duckdb", "mariadb"])
def lab(make_sql: MakeLab, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlLab]:
    """A database whose tables' names know no case."""
    if request.param != "mariadb":
        yield make_sql(request.param)
        return
    lab = SqlLab(request.getfixturevalue("without_case"), tmp_path)
    lab.run("DROP TABLE IF EXISTS binlane_marks")
    yield lab
    lab.close()


def refused(handler: SqlHandler, table: str, **fields: Any) -> str:
    with pytest.raises(Rejected) as told:
        handler.handle(orders({"id": 1, "note": "other"}, table=table, **fields))
    return str(told.value)


def named(batch: Batch, database: str, name: str) -> Batch:
    return Batch(batch.table, batch.changes, database=database, name=name)


def test_two_tables_whose_names_differ_in_case_are_never_one(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        why = refused(handler, "shop.orders")
        assert "holds the rows of shop.Orders" in why
        assert "Set table or schema" in why
    with lab.handler(worker="other") as handler:
        assert "holds the rows of shop.Orders" in refused(handler, "shop.orders")
        handler.handle(orders({"id": 2, "note": "b"}, table="shop.Orders", offset=1))
    assert [row["id"] for row in lab.rows("shop.Orders")] == [1, 2]


@pytest.mark.parametrize("mode", ["replica", "history"])
@pytest.mark.parametrize("sql", ["TRUNCATE orders", "ALTER TABLE orders ADD more int", "DROP TABLE orders"])
def test_no_statement_changes_another_tables_rows(lab: SqlLab, sql: str, mode: str) -> None:
    with lab.handler(ddl={"drop_tables": True}, mode=mode) as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        before = lab.rows("shop.Orders")
        with pytest.raises(Rejected, match=r"holds the rows of shop\.Orders"):
            handler.handle(make_batch("shop.orders", [{"sql": sql}], offset=1))
    assert lab.rows("shop.Orders") == before


def test_a_table_that_is_renamed_takes_its_place_along(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        for offset in (1, 2):  # it may come twice
            sql = "RENAME TABLE shop.Orders TO shop.orders"
            handler.handle(make_batch("shop.Orders", [{"sql": sql}], offset=offset))
        handler.handle(orders({"id": 2, "note": "b"}, table="shop.orders"))
        assert "holds the rows of shop.orders" in refused(handler, "shop.Orders", offset=3)
        sql = "RENAME TABLE shop.orders TO shop.past"
        handler.handle(make_batch("shop.orders", [{"sql": sql}], offset=4))
        handler.handle(orders({"id": 3, "note": "c"}, table="shop.Orders", offset=5))
        handler.handle(orders({"id": 4, "note": "d"}, table="shop.past", offset=6))
    assert [row["id"] for row in lab.rows("shop.past")] == [1, 2, 4]
    assert [row["id"] for row in lab.rows("shop.Orders")] == [3]


def test_an_ended_history_whose_name_gets_another_case_goes_on(lab: SqlLab) -> None:
    with lab.handler(mode="history") as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        renamed = "RENAME TABLE shop.Orders TO shop.orders"
        for offset, sql in enumerate(
            ("TRUNCATE shop.Orders", renamed, renamed), start=1
        ):  # it may come twice
            handler.handle(make_batch("shop.Orders", [{"sql": sql}], offset=offset))
        handler.handle(orders({"id": 2, "note": "b"}, table="shop.orders", offset=4))
    assert [row["id"] for row in lab.rows("shop.orders")] == [1, 2]


def test_statements_change_a_table_whose_name_has_another_case(lab: SqlLab) -> None:
    lab.make("shop.Orders", "id int NOT NULL PRIMARY KEY, note varchar(20), more int")
    lab.run(f"CREATE INDEX of_note ON {lab.ref('shop.Orders')} (note)") if lab.dialect == "sqlite" else None
    with lab.handler() as handler:
        handler.handle(orders(ROW, table="shop.orders"))
        for offset, clause in enumerate(
            ("DROP COLUMN more", "MODIFY id varchar(9)", "DROP PRIMARY KEY, ADD PRIMARY KEY (note)"), start=1
        ):
            sql = f"ALTER TABLE orders {clause}"
            handler.handle(make_batch("shop.orders", [{"sql": sql}], offset=offset))
        handler.handle(orders({"id": "x", "note": "b"}, table="shop.orders", key="note", offset=4))
    assert lab.rows("shop.orders") == [{"id": "1", "note": "a"}, {"id": "x", "note": "b"}]
    if lab.dialect == "sqlite":
        assert lab.run("SELECT count(*) FROM sqlite_master WHERE name = 'of_note'") == [(1,)]


def test_check_knows_a_renamed_tables_former_name(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        names = ["Orders", "orders", "ORDERS", "Orders"]
        for offset, (old, new) in enumerate(pairwise(names), start=1):
            sql = f"RENAME TABLE shop.{old} TO shop.{new}"
            handler.handle(make_batch(f"shop.{old}", [{"sql": sql}], offset=offset))
            handler.handle(orders({"id": offset, "note": new}, table=f"shop.{new}", topic=new))
            context = HandlerContext(worker="w", handler="SqlHandler", folder=lab.folder)
            SqlHandler(url=lab.url).check(context)
    lab.run("UPDATE binlane_marks SET source_table = 'shop.oRDERS' WHERE source_table = 'shop.orders'")
    with pytest.raises(DatabaseError, match=r"shop\.Orders and shop\.oRDERS"):
        SqlHandler(url=lab.url).check(context)


def test_no_reload_of_a_former_name_replaces_the_rows(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        sql = "RENAME TABLE shop.Orders TO shop.orders"
        handler.handle(make_batch("shop.orders", [{"sql": sql}], offset=1))
        handler.handle(orders({"id": 2, "note": "b"}, table="shop.orders", offset=2))
    for name, told in (("Orders", "holds the rows of"), ("orders", "also has rows of")):
        with pytest.raises(Refused, match=f"{told}|DuckDB"), reloading(lab, source=f"shop.{name}"):
            pass


def test_of_two_tables_that_are_made_at_once_one_is_rejected(without_case: str, tmp_path: Path) -> None:
    lab = SqlLab(without_case, tmp_path)
    lab.run("DROP TABLE IF EXISTS binlane_marks")
    with lab.handler() as one, lab.handler(worker="other") as other:
        assert other._engine is not None
        once: Iterator[str] = iter(["shop.Orders"])

        @sa.event.listens_for(other._engine, "before_cursor_execute")
        def _meanwhile(_: Any, __: Any, statement: str, *___: Any) -> None:
            # The other has seen that there is no such table.
            if "GET_LOCK" in statement or statement.startswith("DELETE FROM binlane_marks"):
                for table in once:
                    one.handle(orders(ROW, table=table))

        assert "holds the rows of shop.Orders" in refused(other, "shop.orders")
        one.handle(orders({"id": 2, "note": "b"}, table="shop.Orders", offset=1))
    assert list(once) == []
    assert [row["note"] for row in lab.rows("shop.Orders")] == ["a", "b"]
    lab.close()


def test_a_table_that_is_gone_is_free_again(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        lab.run(f"DROP TABLE {lab.ref('shop.Orders')}")
        handler.handle(orders({"id": 2, "note": "b"}, table="shop.orders"))
        assert "holds the rows of shop.orders" in refused(handler, "shop.Orders", offset=1)


def test_names_that_make_one_with_their_dots_are_told(make_sql: MakeLab) -> None:
    lab = make_sql("sqlite")
    with lab.handler() as handler:
        handler.handle(named(orders(ROW, table="a.b.c"), "a.b", "c"))
        with pytest.raises(Rejected, match=r"holds the rows of a\.b\.c"):
            handler.handle(named(orders({"id": 2}, table="a.b.c", topic="other"), "a", "b.c"))
    assert lab.rows("a.b.c") == [ROW]


@pytest.mark.parametrize("mode", ["replica", "history"])
def test_tables_that_share_one_ask_once_for_its_owner(make_sql: MakeLab, mode: str) -> None:
    asked: list[str] = []
    with make_sql("sqlite").handler(mode=mode, table="all_orders") as handler:
        assert handler._engine is not None

        @sa.event.listens_for(handler._engine, "before_cursor_execute")
        def _see(_: Any, __: Any, statement: str, *___: Any) -> None:
            asked.extend([statement] if "binlane_marks.owner" in statement else [])

        for offset in range(6):
            row = {"id": offset, "note": "a"}
            handler.handle(orders(row, table=f"{('shop', 'crm')[offset % 2]}.orders", offset=offset))
            if offset == 1:
                asked.clear()
    assert asked == []


def test_tables_that_the_options_lead_into_one_share_it(sql: SqlLab) -> None:
    names = {"table": "all_orders"} if sql.dialect == "sqlite" else {"schema": "shop", "table": "all_orders"}
    with sql.handler(**names) as handler:
        for place, table in enumerate(("shop.orders_1", "shop.Orders_1", "crm.orders_2")):
            handler.handle(orders({"id": place}, table=table, topic=table))
    table = "all_orders" if sql.dialect == "sqlite" else sql.ref("shop.all_orders")
    [(count,)] = sql.run(f"SELECT count(*) FROM {table}")
    assert count == 3


def test_one_table_of_several_databases_shares_a_table(sql: SqlLab) -> None:
    names = {"table": "{table}"} if sql.dialect == "sqlite" else {"schema": "shop"}
    with sql.handler(**names) as handler:
        handler.handle(orders({"id": 1}, table="shop_1.orders", topic="a"))
        handler.handle(orders({"id": 2}, table="shop_2.orders", topic="b"))


def test_check_tells_of_tables_that_have_met_before(lab: SqlLab) -> None:
    """As an earlier release has let them."""
    with lab.handler() as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        handler.handle(orders({"id": 9}, table="shop.fine"))
        lab.run("UPDATE binlane_marks SET source_table = 'shop.orders' WHERE source_table = 'shop.Orders'")
        handler.handle(orders(ROW, table="shop.Orders"))
    context = HandlerContext(worker="w", handler="SqlHandler", folder=lab.folder)
    with pytest.raises(DatabaseError, match=r"shop\.Orders and shop\.orders"):
        SqlHandler(url=lab.url).check(context)


def test_check_counts_no_table_of_another_handler_as_a_former_owner(lab: SqlLab) -> None:
    with lab.handler(worker="other", table="beside_{table}") as other:
        other.handle(orders(ROW, table="shop.orders"))
    test_check_tells_of_tables_that_have_met_before(lab)


def test_what_the_error_says_gives_the_table_to_the_other(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(orders(ROW, table="shop.Orders"))
        why = refused(handler, "shop.orders")
        lab.run(why[why.index("DELETE FROM") : why.index(", at ")])
        handler.handle(orders({"id": 2, "note": "b"}, table="shop.orders"))
        assert "holds the rows of shop.orders" in refused(handler, "shop.Orders", offset=1)
    assert [row["id"] for row in lab.rows("shop.Orders")] == [1, 2]


def test_a_table_that_others_share_is_of_no_table_that_is_named_like_it(sql: SqlLab) -> None:
    """In whatever order they come: the templates of one leave its database out, those of the other do not."""
    names = {"table": "shop.{table}"} if sql.dialect == "sqlite" else {"schema": "shop"}
    fixed = {"table": "shop.all"} if sql.dialect == "sqlite" else {"schema": "shop", "table": "all"}
    with sql.handler(**names) as shared, sql.handler("other") as own, sql.handler("third", **fixed) as third:
        shared.handle(orders(ROW, table="shop_1.orders"))
        assert "holds the rows of *.orders" in refused(own, "shop.orders")
        own.handle(orders(ROW, table="shop.items"))
        assert "holds the rows of shop.items" in refused(shared, "shop_1.items")
        third.handle(orders(ROW, table="shop_1.orders"))
        assert "holds the rows of *.*" in refused(own, "shop.all")
    for table in ("orders", "items", "all"):
        assert sql.rows(f"shop.{table}") == [ROW]


def test_a_handler_keeps_its_tables_under_other_templates_if_its_user_says_so(sql: SqlLab) -> None:
    names = {"table": "shop.{table}"} if sql.dialect == "sqlite" else {"schema": "shop"}
    with sql.handler() as handler:
        handler.handle(orders(ROW, table="shop.orders"))
    with sql.handler(**names) as handler:
        why = refused(handler, "shop.orders", offset=1)
        assert "shop.orders by other settings of table and schema" in why
        sql.run(why[why.index("DELETE FROM") : why.index(", at ")])
        for offset, table in enumerate(("shop.orders", "crm.orders"), 1):
            handler.handle(orders({"id": 1 + offset, "note": "a"}, table=table, offset=offset))
    assert [row["id"] for row in sql.rows("shop.orders")] == [1, 2, 3]


def test_a_reload_leaves_no_owner_of_its_table(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(batch(0, 3))
        if sql.dialect == "duckdb":
            return
        before = sql.run("SELECT * FROM binlane_marks")
        with reloading(sql) as reload:
            reload.apply(batch(0, 3))
            assert len(sql.run("SELECT * FROM binlane_marks WHERE shard = -4")) == 2
    assert sql.run("SELECT * FROM binlane_marks") == before


@pytest.mark.parametrize(
    "statement", ["DROP TABLE IF EXISTS orders", "CREATE INDEX i ON orders (note)"], ids=["drop", "index"]
)
@pytest.mark.parametrize("is_first", [False, True])
def test_no_statement_without_effect_gives_a_table_to_another(
    sql: SqlLab, statement: str, *, is_first: bool
) -> None:
    names = {"table": "shop.{table}"} if sql.dialect == "sqlite" else {"schema": "shop"}
    with sql.handler(**names) as shared, sql.handler("other") as own:
        if is_first:
            own.handle(make_batch("shop.orders", [{"sql": statement}]))
        shared.handle(orders(ROW, table="shop_1.orders"))
        own.handle(make_batch("shop.orders", [{"sql": statement}], offset=1))
        assert "holds the rows of *.orders" in refused(own, "shop.orders", offset=2)
    assert sql.rows("shop.orders") == [ROW]


def test_a_handler_comes_to_no_shared_table_by_new_templates_or_a_drop(sql: SqlLab) -> None:
    is_lite = sql.dialect == "sqlite"
    names = {"table": "shop.{table}"} if is_lite else {"schema": "shop"}
    earlier = {"table": "shop.my_{table}"} if is_lite else {"schema": "shop", "table": "my_{table}"}
    with sql.handler(**names) as shared, sql.handler("other", **earlier) as own:
        own.handle(orders(ROW, table="shop.orders"))
        shared.handle(orders(ROW, table="shop_1.orders"))
        shared.handle(orders(ROW, table="shop_1.items", offset=1))
    with sql.handler("other") as own, sql.handler(**names) as shared:
        assert "holds the rows of *.orders" in refused(own, "shop.orders", offset=1)
        own.handle(orders(ROW, table="shop.items_2", offset=1))
        own.handle(make_batch("shop.items_2", [{"sql": "DROP TABLE items_2"}], offset=2))
        shared.handle(orders(ROW, table="shop_1.items_2", offset=2))
        assert "holds the rows of *.items_2" in refused(own, "shop.items_2", offset=3)
    assert sql.rows("shop.orders") == sql.rows("shop.items_2") == [ROW]
