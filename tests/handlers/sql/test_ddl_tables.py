"""Tables made, dropped, emptied and renamed in each target; the same statement again changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ddl_lab import DDLLab

from handlers import Rejected


def test_a_table_is_made_with_its_columns_and_key(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (b varchar(9), a int NOT NULL, c decimal(9,2) NOT NULL, PRIMARY KEY (c, a))")
    assert lab.columns() == ["b", "a", "c"]
    assert lab.key() == ["c", "a"]


def test_a_unique_key_serves_as_the_key_of_a_table_without_one(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (code varchar(20) NOT NULL, n int, UNIQUE KEY (code))")
    assert lab.key() == ["code"]


def test_what_the_source_wants_not_null_may_be_null(lab: DDLLab) -> None:
    """A zero date is None, and so may be a column that a row lacks."""
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, d date NOT NULL DEFAULT '0000-00-00')")
    lab.put({"id": "int", "d": "date"}, {"id": 1, "d": None})
    assert lab.rows() == [("1", None)]


def test_a_table_that_is_there_stays_as_it_is(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, v int)")
    lab.put({"id": "int", "v": "int"}, {"id": 1, "v": 2})
    assert lab.follow("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, other text)").done == ()
    assert lab.rows() == [("1", "2")]


def test_a_table_like_another_has_its_columns_and_key_but_no_rows(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE s (id bigint unsigned PRIMARY KEY, v decimal(9,2))")
    lab.put({"id": "bigint unsigned"}, {"id": 2**64 - 1}, table="s")
    lab.follow("CREATE TABLE other.t LIKE db.s", database="other")
    assert lab.columns("t", "other") == ["id", "v"]
    assert lab.key("t", "other") == ["id"]
    assert lab.rows(database="other") == []


def test_a_table_like_another_has_its_defaults(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE s (id int PRIMARY KEY)")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {lab.ref('s', 'db')} ADD COLUMN v int DEFAULT 5")
    lab.follow("CREATE TABLE other.t LIKE db.s", database="other")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql(f"INSERT INTO {lab.ref('t', 'other')} (id) VALUES (1)")
    assert lab.rows(database="other") == [("1", "5")]


def test_a_table_is_dropped(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.follow("CREATE TABLE u (id int PRIMARY KEY)")
    lab.follow("DROP TABLE IF EXISTS `db`.`t`, `no_such_table`")
    assert not lab.has("t")
    assert lab.has("u")


@pytest.mark.parametrize("sql", [None, "TRUNCATE t", "TRUNCATE TABLE db.t"])
def test_a_table_is_emptied(lab: DDLLab, sql: str | None) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1}, {"id": 2})
    lab.follow(sql)
    assert lab.rows() == []


def test_a_table_is_renamed_with_its_rows(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE `a.b` (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1}, table="a.b")
    result = lab.follow("RENAME TABLE `a.b` TO `订``单`")
    assert not lab.has("a.b")
    assert lab.rows(table="订`单") == [("1",)]
    assert {name.name.split(".", 1)[-1] for name in result.targets} >= {"订`单"}


def test_a_renamed_table_moves_to_a_database_that_has_its_former_name(lab: DDLLab) -> None:
    """In PostgreSQL, its index still has that name."""
    for database in ("db", "other"):
        lab.follow("CREATE TABLE former (id int PRIMARY KEY, v int)", table="former", database=database)
    lab.put({"id": "int"}, {"id": 1}, table="former")
    lab.follow("RENAME TABLE former TO t")
    lab.follow("RENAME TABLE db.t TO other.t", database="other")
    assert lab.rows("id", "t", "other") == [("1",)]
    assert lab.key("t", "other") == ["id"]
    lab.follow("ALTER TABLE t DROP PRIMARY KEY", database="other")
    assert lab.key("t", "other") == []


def test_a_table_moves_to_another_database(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t RENAME TO other.moved")
    assert not lab.has("t")
    assert lab.rows(table="moved", database="other") == [("1",)]


def test_a_table_is_found_whose_database_the_statement_leaves_open(lab: DDLLab) -> None:
    """Canal and Debezium name the new table's database only."""
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t RENAME TO other.moved", database="other", table="moved")
    assert not lab.has("t")
    assert lab.rows(table="moved", database="other") == [("1",)]


def test_a_table_is_not_guessed_where_two_could_be_meant(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)", database="other")
    with pytest.raises(Rejected, match="does not name the database of t"):
        lab.follow("ALTER TABLE t RENAME TO other.moved", database="other", table="moved")


def test_tables_swap_names_as_online_schema_changes_do(lab: DDLLab) -> None:
    for table in ("t", "_t_new"):
        lab.follow(f"CREATE TABLE {table} (v varchar(9))")
        lab.put({"v": "varchar(9)"}, {"v": table}, table=table)
    lab.follow("RENAME TABLE t TO _t_old, _t_new TO t")
    assert lab.rows() == [("_t_new",)]
    assert lab.rows(table="_t_old") == [("t",)]
    assert not lab.has("_t_new")


def test_a_name_that_postgresql_would_cut_is_rejected(
    make_lab: Callable[[str], DDLLab],
) -> None:
    lab = make_lab("postgres")
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    long = "列" * 22  # 66 bytes
    for sql in (
        f"CREATE TABLE {long} (id int)",
        f"ALTER TABLE t ADD {long} int",
        f"RENAME TABLE t TO {long}",
    ):
        with pytest.raises(Rejected, match="PostgreSQL accepts names of at most 63 bytes"):
            lab.follow(sql)


def test_a_table_that_is_replaced_loses_its_rows_and_its_columns(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, v int)")
    lab.put({"id": "int", "v": "int"}, {"id": 1, "v": 2})
    lab.follow("CREATE OR REPLACE TABLE t (code varchar(9) PRIMARY KEY, w int)")
    assert lab.columns() == ["code", "w"]
    assert lab.key() == ["code"]
    assert lab.rows() == []


@pytest.mark.parametrize("sql", ["DROP INDEX `PRIMARY` ON t", "ALTER TABLE t DROP CONSTRAINT `PRIMARY`"])
def test_the_primary_key_goes_by_its_name_too(lab: DDLLab, sql: str) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, v int)")
    lab.follow(sql)
    assert lab.key() == []
    lab.follow("ALTER TABLE t MODIFY v int PRIMARY KEY")
    assert lab.key() == ["v"]
