"""Tables that others make, keep and replace: nothing of the log is lost in them, and no row is judged for
another."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from spark_lake import Lake, MakeLake, change

from handlers import Rejected, TargetUnavailable
from handlers.spark.engine.table import judging
from handlers.spark.engine.table.failures import LogFailure

pytestmark = pytest.mark.usefixtures("told_to_merge")

DEFAULTS = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"


def make(lake: Lake, columns: str, more: str = "") -> None:
    """A table that is there already."""
    lake.spark.sql(f"CREATE TABLE delta.`{lake.folder / 'lake/shop/orders'}` ({columns}) USING delta {more}")


def brought(lake: Lake, *changes: Any, **more: Any) -> None:
    lake.take(*changes, **more)
    lake.sink().merge()


def refused(lake: Lake, *changes: Any, told: str, at: int = 0, **more: Any) -> None:
    with pytest.raises(Rejected, match=told) as found:
        lake.take(*changes, **more)
    assert found.value.at == at


def row(offset: int, id: int, name: str, **more: Any) -> Any:
    return change(offset, {"id": id, "name": name}, **more)


def test_rows_are_missed_where_another_table_took_the_place_of_theirs(lake: Lake) -> None:
    brought(lake, row(1, 1, "a"), row(2, 2, "b"))
    lake.sql(
        "CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (name) AS SELECT * FROM {t} WHERE id = 1"
    )
    lake.take(row(3, 3, ""))
    told = "was replaced by another table by its version 1, but version 0 had a newer part"
    with pytest.raises(LogFailure, match=told):
        lake.sink().merge()
    lake.crash()
    with pytest.raises(TargetUnavailable, match=told):
        lake.take(row(4, 4, "d"))
    assert lake.rows() == [(1, "a")]
    lake.sql("RESTORE {t} TO VERSION AS OF 0")
    brought(lake, row(4, 4, "d"))
    assert lake.rows() == [(1, "a"), (2, "b"), (3, ""), (4, "d")]


@pytest.mark.parametrize(
    ("template", "other"),
    [
        ("{database}.{table}", "shop.Orders"),
        pytest.param("mixed.{table}", "store.orders", marks=pytest.mark.soak),
    ],
)
def test_two_source_tables_share_no_table_of_a_catalog(
    make_lake: MakeLake, template: str, other: str
) -> None:
    lake = make_lake(table=template)
    name = template.format(database="shop", table="orders")
    try:
        brought(lake, row(1, 1, "a"))
        refused(lake, row(2, 1, "OTHER"), table=other, told=r"the place of the table of shop\.orders")
        lake.crash()
        brought(lake, row(3, 2, "b"))
        assert sorted(map(tuple, lake.spark.table(name).collect())) == [(1, "a"), (2, "b")]
    finally:
        lake.spark.sql(f"DROP SCHEMA {name.partition('.')[0]} CASCADE")


def test_a_table_that_is_removed_with_its_log_may_be_kept_otherwise(make_lake: MakeLake) -> None:
    lake = make_lake(table="{database}.{table}")
    try:
        brought(lake, row(1, 1, "a"))
        log = Path(lake.sink().log_folder).parent
        lake.close()
        lake.spark.sql("DROP TABLE shop.orders")
        shutil.rmtree(log)
        lake.options |= {"table": "spark_catalog.{database}.{table}", "prefix": "__", "mode": "changelog"}
        lake.open()
        brought(lake, row(1, 1, "a"))
        assert [(row.id, row.name) for row in lake.spark.table("shop.orders").collect()] == [(1, "a")]
    finally:
        lake.spark.sql("DROP SCHEMA shop CASCADE")


@pytest.mark.parametrize(
    ("own", "more", "made"),
    [
        ("own string DEFAULT 'x'", DEFAULTS, "x"),
        pytest.param("own string GENERATED ALWAYS AS (upper(name))", "", None, marks=pytest.mark.soak),
    ],
)
def test_equal_rows_get_what_only_the_table_gives_them(
    make_lake: MakeLake, own: str, more: str, made: str | None
) -> None:
    lake = make_lake()
    make(lake, f"id int, name string, {own}", more)
    brought(lake, *(row(each, 1, "a", key=()) for each in (1, 2, 3)), row(4, 2, "b", key=()))
    lake.sql("UPDATE {t} SET own = own")  # in a file of its own
    brought(lake, change(5, None, op="delete", before={"id": 1, "name": "a"}, key=()))
    assert lake.rows() == [(1, "a", made or "A"), (1, "a", made or "A"), (2, "b", made or "B")]


def test_equal_rows_are_refused_by_a_table_that_numbers_them(lake: Lake) -> None:
    make(lake, "id int, name string, own bigint GENERATED ALWAYS AS IDENTITY")
    refused(lake, row(1, 1, "a", key=()), told="'own' is GENERATED ALWAYS AS IDENTITY")
    brought(lake, row(1, 1, "a"))  # by a key it is found, and stays
    assert [each[:2] for each in lake.rows()] == [(1, "a")]


def test_no_history_is_kept_in_a_table_that_is_none(make_lake: MakeLake) -> None:
    lake = make_lake(mode="history")
    make(lake, "id int, name string")
    refused(lake, row(1, 1, "a"), told="no column _valid_from, so binlane did not create it")
    assert lake.rows() == []


def test_a_condition_that_speaks_of_a_column_of_the_table_alone_refuses_that_row(lake: Lake) -> None:
    make(lake, "id int, name string, own int DEFAULT 3", DEFAULTS)
    lake.sql("INSERT INTO {t} VALUES (1, 'x', 1)")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT long CHECK (length(name) <= own)")
    told = r"CHECK long \(length \( name \) <= own\)"
    refused(lake, row(1, 2, "abc"), row(2, 1, "ab", op="update"), told=told, at=1)
    brought(lake, row(1, 2, "abc"))
    refused(lake, row(3, 3, "abcd"), told=told)
    brought(lake, row(3, 1, "b", op="update"))
    assert lake.rows() == [(1, "b", 1), (2, "abc", 3)]


def test_a_default_of_fields_with_odd_names_is_judged(lake: Lake) -> None:
    odd = "DEFAULT named_struct('a b', 3, 'c`d', map(5, array(named_struct('e:f', 4))))"
    mapped = "'delta.columnMapping.mode' = 'name'"
    make(
        lake,
        f"id int, name string, own struct<`a b`: bigint, `c``d`: map<int, array<struct<`e:f`: int>>>> {odd}",
        DEFAULTS.replace(")", f", {mapped})"),
    )
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT long CHECK (length(name) <= own.`a b`)")
    brought(lake, row(1, 1, "abc"))
    refused(lake, row(2, 2, "abcd"), told="CHECK long")
    assert lake.rows("id, name, own.`a b`, own.`c``d`[5][0].`e:f`") == [(1, "abc", 3, 4)]


def test_a_condition_that_fails_for_a_value_refuses_that_row(lake: Lake) -> None:
    make(lake, "id int, name string")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT number CHECK (CAST(name AS int) > 0)")
    good = [row(each, each, "7") for each in range(3)]
    refused(lake, *good, row(3, 3, "x"), row(4, 4, "8"), told="CHECK number", at=3)
    brought(lake, *good)
    assert lake.rows() == [(each, "7") for each in range(3)]


def test_a_moment_that_python_does_not_hold_is_refused_as_any(lake: Lake) -> None:
    make(lake, "id int, made timestamp")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT late CHECK (made > TIMESTAMP '2000-01-01')")
    zero, late = (datetime(year, 1, 1, tzinfo=UTC) for year in (1, 2026))
    refused(lake, change(1, {"id": 1, "made": zero}, {"id": "int", "made": "timestamp"}), told="CHECK late")
    brought(lake, change(1, {"id": 1, "made": late}, {"id": "int", "made": "timestamp"}))
    assert lake.rows() == [(1, late)]


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("replica", "struct<a: int NOT NULL>"),
        ("changelog", "struct<a: struct<b: int NOT NULL>>"),
        pytest.param("replica", "struct<a: struct<b: int NOT NULL>>", marks=pytest.mark.soak),
        pytest.param("changelog", "struct<a: int NOT NULL>", marks=pytest.mark.soak),
    ],
)
def test_a_table_that_refuses_each_row_for_what_a_struct_lacks_is_refused(
    make_lake: MakeLake, mode: str, kind: str
) -> None:
    lake = make_lake(mode=mode)
    make(lake, f"id int, name string, own {kind}")
    place = "own.a.b" if "b" in kind else "own.a"
    refused(lake, row(1, 1, "a"), told=f"'{place}' must not be null")
    lake.sql(f"ALTER TABLE {{t}} ALTER COLUMN {place} DROP NOT NULL")
    brought(lake, row(1, 1, "a"))
    assert lake.rows("id, name, own") == [(1, "a", None)]


def test_a_struct_that_the_table_fills_in_may_hold_what_must_not_be_null(lake: Lake) -> None:
    kind = "struct<a: int NOT NULL>"
    computed = f"two {kind} GENERATED ALWAYS AS (named_struct('a', 4))"
    make(lake, f"id int, name string, one {kind} DEFAULT named_struct('a', 3), {computed}", DEFAULTS)
    brought(lake, row(1, 1, "a"))
    assert lake.rows("id, one.a AS one, two.a AS two") == [(1, 3, 4)]


@pytest.mark.parametrize("own", [pytest.param("", marks=pytest.mark.soak), ", own int DEFAULT 3"])
def test_rows_are_judged_in_the_types_of_the_table(lake: Lake, own: str) -> None:
    make(lake, f"id bigint, name string, n bigint{own}", DEFAULTS)
    lake.sql(f"ALTER TABLE {{t}} ADD CONSTRAINT large CHECK (id * n > {'own' if own else '3'})")
    types = {"id": "int", "name": "varchar(20)", "n": "int"}
    refused(lake, change(1, {"id": 3, "name": "a", "n": 1}, types), told="CHECK large")
    brought(lake, change(1, {"id": 2**20, "name": "a", "n": 2**20}, types))
    assert lake.rows("id, name, n") == [(2**20, "a", 2**20)]


def test_what_the_table_has_of_a_row_decides_where_the_change_does_not_tell_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "own struct<`a b`: int>"
    make(
        lake,
        f"id int, name string NOT NULL, n int, {own}",
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    )
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT few CHECK (length(name) < n)")
    types = {"id": "int", "name": "varchar(20)", "n": "int"}
    brought(lake, change(1, {"id": 1, "name": "abc", "n": 9}, types))

    def partly(offset: int, **told: Any) -> Any:
        return replace(change(offset, told, types, op="update"), lacks=None)

    refused(lake, partly(2, id=1, n=3), told="CHECK few")
    refused(lake, partly(3, id=2, n=7), told="name NOT NULL|CHECK few")
    lake.take(partly(4, id=1, n=5))
    refused(lake, partly(5, id=1, name="abcde"), told="CHECK few")  # by what only waits
    monkeypatch.setattr(judging, "_first", lambda *_: pytest.fail("each condition reads the table"))
    brought(lake, partly(6, id=1, name="abcd"))
    assert lake.rows("id, name, n") == [(1, "abcd", 5)]


def test_rows_are_judged_where_the_table_lacks_their_key(lake: Lake) -> None:
    make(lake, "code string, n int NOT NULL")
    lake.sql("INSERT INTO {t} VALUES ('x', 1)")
    types = {"id": "int", "code": "varchar(20)", "n": "int"}

    def partly(offset: int, **told: Any) -> Any:
        return replace(change(offset, told, types, op="update"), lacks=None)

    refused(lake, partly(1, id=1, code="a"), told="n NOT NULL")
    brought(lake, partly(2, id=1, n=2))
    assert lake.rows("id, code, n") == [(1, None, 2), (None, "x", 1)]


def test_columns_of_the_table_alone_are_none_of_the_source_after_a_statement(lake: Lake) -> None:
    make(lake, "id bigint, name string, own string, nested struct<a: int>, any variant")
    lake.sql("INSERT INTO {t} SELECT 1, 'x', 'mine', named_struct('a', 1), parse_json('7')")
    brought(lake, row(1, 1, "a", op="update", types=None))
    added = change(2, None, None, op="ddl", sql="ALTER TABLE orders ADD COLUMN c int NOT NULL DEFAULT 5")
    lake.take(added)
    brought(lake, change(3, {"id": 1, "name": "b", "c": 6}, None))
    assert lake.rows("id, name, own, nested.a, string(any) AS v, c") == [(1, "b", "mine", 1, "7", 6)]


@pytest.mark.soak
def test_a_table_is_not_copied_into_another_schema_without_what_it_computes(make_lake: MakeLake) -> None:
    lake = make_lake(table="{database}.{table}")
    try:
        lake.spark.sql("CREATE SCHEMA shop")
        columns = "id int, name string, own string GENERATED ALWAYS AS (upper(name))"
        lake.spark.sql(f"CREATE TABLE shop.orders ({columns}) USING delta")
        brought(lake, row(1, 1, "a"))
        renamed = change(2, None, None, op="ddl", sql="RENAME TABLE orders TO store.orders")
        refused(lake, renamed, told="it must be copied, and own would no longer be GENERATED")
        brought(lake, row(3, 2, "b"))
        assert sorted(map(tuple, lake.spark.table("shop.orders").collect())) == [(1, "a", "A"), (2, "b", "B")]
    finally:
        lake.spark.sql("DROP SCHEMA shop CASCADE")
