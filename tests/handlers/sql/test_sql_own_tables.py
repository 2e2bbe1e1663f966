"""No source table is kept in the tables that the handler needs for itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sql_lab import SqlLab, orders

from handlers import Rejected
from handlers.testing import make_batch

MakeLab = Callable[[str], SqlLab]
ROW = {"id": 1, "note": "a"}
FORGED = {"source_table": "shop.orders", "shard": -1, "topic": "test", "kafka_offset": 999_999}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("sqlite", "binlane_marks"),
        ("sqlite", "Binlane_Marks"),
        ("mariadb", "binlane_marks"),
        ("mariadb", "Binlane_Marks"),
        ("postgres", "binlane_marks"),
        ("duckdb", "Binlane_Marks"),
    ],
)
def test_rows_never_become_marks(make_sql: MakeLab, kind: str, name: str) -> None:
    """Wherever the target keeps both under one name."""
    sql = make_sql(kind)
    with sql.handler(**together(sql)) as handler:
        handler.handle(orders(ROW, offset=0))
        before = sql.marks()
        with pytest.raises(Rejected, match="stores what it has applied; set table") as told:
            handler.handle(orders(ROW, FORGED, key=None, table=f"shop.{name}", offset=1))
        assert told.value.at == 0
        assert sql.marks() == before
        handler.handle(orders({"id": 2, "note": "b"}, offset=2))


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("TRUNCATE TABLE binlane_marks", "binlane_marks"),
        ("DROP TABLE IF EXISTS binlane_marks", "orders"),
        ("ALTER TABLE binlane_marks ADD a int, DROP COLUMN topic", "binlane_marks"),
        ("CREATE TABLE binlane_marks (id int PRIMARY KEY)", "orders"),
        ("RENAME TABLE orders TO passing, binlane_marks TO orders", "orders"),
        ("RENAME TABLE items TO others, orders TO binlane_marks", "orders"),
        ("CREATE TABLE copy LIKE binlane_marks", "copy"),
    ],
)
def test_no_statement_changes_the_marks(sql: SqlLab, statement: str, table: str) -> None:
    with sql.handler(**together(sql)) as handler:
        handler.handle(orders(ROW, offset=0))
        handler.handle(orders(ROW, offset=0, table="shop.items"))
        before = sql.marks()
        with pytest.raises(Rejected, match=r"shop\.binlane_marks: its rows would be in .*binlane_marks"):
            handler.handle(make_batch(f"shop.{table}", [{"sql": statement}], offset=1))
        assert sql.marks() == before
        handler.handle(orders({"id": 2, "note": "b"}, offset=2))  # nothing of it was followed
        handler.handle(orders({"id": 2, "note": "b"}, offset=2, table="shop.items"))


def test_a_table_of_that_name_elsewhere_is_one_as_any(server: SqlLab) -> None:
    with server.handler() as handler:
        handler.handle(orders(ROW, offset=0, table="shop.binlane_marks"))
        handler.handle(make_batch("shop.binlane_marks", [{"sql": "TRUNCATE TABLE binlane_marks"}], offset=1))
        handler.handle(orders(ROW, offset=2, table="shop.binlane_marks"))
    assert server.rows("shop.binlane_marks") == [ROW]


def test_marks_are_known_wherever_search_path_leads(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    with lab.handler(schema="public") as handler:
        handler.handle(orders(ROW, offset=0))
    lab.run("CREATE SCHEMA first_of_all")
    lab.url += "?options=-csearch_path%3Dfirst_of_all,public"
    with lab.handler(schema="public") as handler, pytest.raises(Rejected, match="stores what it has applied"):
        handler.handle(orders(ROW, offset=1, table="shop.binlane_marks"))


def test_no_table_of_the_server_itself_is_written_to(server: SqlLab) -> None:
    name = "pg_catalog.pg_authid" if server.dialect == "postgresql" else "MySQL.user"
    for table in (name, "information_schema.tables"):
        with server.handler(new_columns="ignore") as handler:
            with pytest.raises(Rejected, match="in a schema of the server itself"):
                handler.handle(orders(ROW, offset=0, table=table))
            with pytest.raises(Rejected, match="in a schema of the server itself"):
                handler.handle(make_batch(table, [{"sql": f"DROP TABLE {table}"}], offset=1))


def test_what_sqlite_rebuilds_tables_in_is_no_source_tables(make_sql: MakeLab) -> None:
    lab = make_sql("sqlite")
    with lab.handler(table="{table}") as handler, pytest.raises(Rejected, match="rebuilds tables"):
        handler.handle(orders(ROW, table="shop._Binlane_Rebuilding"))


def together(sql: SqlLab) -> dict[str, str]:
    """Options by which all tables are where the marks are."""
    if sql.dialect in ("postgresql", "duckdb"):
        return {"schema": "public" if sql.dialect == "postgresql" else "main"}
    return {"table": "{table}"} if sql.dialect == "sqlite" else {"schema": sql.engine.url.database or ""}
