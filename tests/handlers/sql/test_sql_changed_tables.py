"""Another session changes a table's columns or keys: no row is written by what they were before."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sql_lab import SqlLab, orders

from handlers import Batch, Rejected, TargetUnavailable

MakeLab = Callable[[str], SqlLab]
WAITING = {
    "postgresql": "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mysql": "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'",
}
RETYPED = {
    "a single is a decimal": ("float", "decimal(12,2)", Decimal("1234567.89")),
    "a single is a double": ("float", "double", 1234567.89),
    "bytes have no fixed length": ("binary(4)", "varbinary(4)", b"ab"),
    "digits are a text": ("decimal(10,0)", "varchar(20)", "007"),
}
FIRST = {"float": 1.5, "binary(4)": b"abcd", "decimal(10,0)": Decimal(1)}


def priced(id_: int, price: Any, type_: str, **fields: Any) -> Batch:
    return orders({"id": id_, "price": price}, types={"id": "int", "price": type_}, **fields)


@pytest.mark.parametrize("case", RETYPED)
def test_a_value_goes_by_the_type_that_another_worker_gave_its_column(server: SqlLab, case: str) -> None:
    old, new, value = RETYPED[case]
    with server.handler() as one, server.handler() as other:
        one.handle(priced(1, FIRST[old], old))
        other.handle(priced(2, FIRST[old], old, partition=1))
        one.handle(orders({"sql": f"ALTER TABLE orders MODIFY price {new}"}, offset=1))
        other.handle(priced(3, value, new, partition=1, offset=1))
    assert [row["price"] for row in server.rows() if row["id"] == 3] == [value]


def test_a_statement_that_waited_for_the_change_does_not_go_by_the_former_type(server: SqlLab) -> None:
    retyped = "ALTER TABLE shop.orders {} price {} decimal(12,2)"
    is_mysql = server.dialect == "mysql"
    with server.handler() as handler, ThreadPoolExecutor(1) as thread:
        handler.handle(priced(1, 1.5, "float"))
        with server.engine.begin() as connection:
            if is_mysql:
                connection.exec_driver_sql("LOCK TABLES shop.orders WRITE")
            connection.exec_driver_sql(retyped.format(*(("MODIFY", "") if is_mysql else ("ALTER", "TYPE"))))
            handled = thread.submit(
                handler.handle, priced(2, Decimal("1234567.89"), "decimal(12,2)", offset=1)
            )
            while not server.run(WAITING[server.dialect]):
                assert not handled.done()
                time.sleep(0.02)
            if is_mysql:
                connection.exec_driver_sql("UNLOCK TABLES")
        handled.result(30)
    assert [row["price"] for row in server.rows()] == [Decimal("1.50"), Decimal("1234567.89")]


@pytest.mark.parametrize("key", ["id", None], ids=["another key", "no key"])
def test_no_row_is_there_twice_after_the_key_has_changed(make_sql: MakeLab, key: str | None) -> None:
    lab = make_sql("mariadb")
    lab.make("shop.orders", "id int PRIMARY KEY, region varchar(9) NOT NULL")
    change = "DROP PRIMARY KEY" + (", ADD PRIMARY KEY (id, region)" if key else "")
    rows = [{"id": id_, "region": "north"} for id_ in (2, 3)]
    updates = [{"before": row, "after": {**row, "region": "south"}} for row in rows]
    with lab.handler() as one, lab.handler() as other:
        one.handle(orders({"id": 1, "region": "north"}))
        other.handle(orders(*rows, partition=1))
        one.handle(orders({"sql": f"ALTER TABLE orders {change}"}, offset=1))
        other.handle(orders(*updates, key=key, partition=1, offset=2))
    assert [(row["id"], row["region"]) for row in lab.rows()] == [(1, "north"), (2, "south"), (3, "south")]


def test_a_table_that_is_locked_by_a_statement_of_ddl_waits(make_sql: MakeLab) -> None:
    lab = make_sql("mariadb")
    lab.make("shop.orders", "id int PRIMARY KEY, region varchar(9)")
    made = "CREATE OR REPLACE TABLE shop.orders (id int PRIMARY KEY, region varchar(9))"
    with lab.handler() as handler, ThreadPoolExecutor(1) as thread:
        made_anew = thread.submit(lab.run, f"{made} SELECT 1 AS id, IF(SLEEP(1), '', 'north') AS region")
        while not lab.run("SELECT 1 FROM information_schema.processlist WHERE state = 'User sleep'"):
            assert not made_anew.done()
            time.sleep(0.02)
        with pytest.raises(TargetUnavailable) as caught:
            handler.handle(orders({"id": 2, "region": "south"}))
        made_anew.result(30)
        handler.handle(orders({"id": 2, "region": "south"}))
    assert caught.value.others_go_on
    assert [row["id"] for row in lab.rows()] == [1, 2]


def test_a_row_is_found_by_the_key_that_the_table_has_now(server: SqlLab) -> None:
    server.make("shop.orders", "id int NOT NULL, region varchar(9) NOT NULL, CONSTRAINT own PRIMARY KEY (id)")
    north, south = {"id": 1, "region": "north"}, {"id": 1, "region": "south"}
    gone = "PRIMARY KEY" if server.dialect == "mysql" else "CONSTRAINT own"
    with server.handler() as handler:
        handler.handle(orders(north, key=None))
        server.run(f"ALTER TABLE shop.orders DROP {gone}, ADD PRIMARY KEY (id, region)")
        server.run("INSERT INTO shop.orders VALUES (1, 'south')")
        handler.handle(orders({"before": north, "after": None}, key=None, offset=1))
    assert server.rows() == [south]


def test_two_tables_of_one_transaction_that_swap_names_are_not_one(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    lab.run(
        "CREATE SCHEMA shop; CREATE TABLE shop.orders (id int PRIMARY KEY, price real); CREATE TABLE "
        "shop.orders_new (id int PRIMARY KEY, price numeric)"
    )
    with lab.handler() as handler:
        handler.handle(priced(1, 1.5, "float"))
        lab.run("ALTER TABLE shop.orders RENAME TO orders_old; ALTER TABLE shop.orders_new RENAME TO orders")
        handler.handle(priced(2, Decimal("1234567.89"), "decimal(12,2)", offset=1))
    assert [row["price"] for row in lab.rows()] == [Decimal("1234567.89")]


def test_no_row_is_blamed_for_a_column_that_is_added_while_the_table_is_read(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    lab.make("shop.orders", "id int PRIMARY KEY, price real")
    reads = []

    def adds(connection: sa.Connection, _: Any, statement: str, *__: Any) -> None:
        if "typtypmod" in statement and connection.engine is not lab.engine:
            reads.append(statement)
            if len(reads) == 2:
                lab.run("ALTER TABLE shop.orders ADD note text")

    sa.event.listen(sa.Engine, "before_cursor_execute", adds)
    try:
        with lab.handler() as handler, pytest.raises(Rejected) as caught:
            handler.handle(orders({"id": 1, "price": 1.5}, {"id": 2, "price": "cheap"}))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", adds)
    assert caught.value.at == 1
    assert len(reads) > 2


def test_a_table_that_another_worker_makes_meanwhile_uses_up_no_attempt(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    columns = "worker, handler, source_table, shard, topic, kafka_partition, kafka_offset, change_index"
    noted = columns.replace("source_table", "'shop.orders'")
    with lab.handler() as handler, ThreadPoolExecutor(1) as thread:
        handler.handle(orders({"id": 1}, table="shop.others"))
        with lab.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE shop.orders (id bigint PRIMARY KEY)")
            connection.exec_driver_sql(
                f"INSERT INTO binlane_marks ({columns}) SELECT {noted} FROM binlane_marks WHERE shard = -2"
            )
            handled = thread.submit(handler.handle, orders({"id": 2}))
            while not lab.run(WAITING["postgresql"]):
                assert not handled.done()
                time.sleep(0.02)
        handled.result(30)
    assert lab.rows() == [{"id": 2}]
