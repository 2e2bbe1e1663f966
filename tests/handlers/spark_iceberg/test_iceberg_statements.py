"""The source's DDL in Iceberg tables: columns keep their ids, and rows get the values that the source has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from iceberg_lab import IcebergLake, change
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType

from handlers import Rejected

MakeLake = Callable[..., IcebergLake]


def _ddl(lake: IcebergLake, offset: int, sql: str) -> None:
    lake.take(change(offset, None, None, op="ddl", sql=sql))


def _ids(lake: IcebergLake) -> dict[str, int]:
    return {each.name: each.field_id for each in lake.table().schema().fields}


@pytest.fixture
def two(lake: IcebergLake) -> IcebergLake:
    """A table with two rows."""
    lake.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": "b"}))
    lake.merge()
    return lake


def test_columns_keep_their_ids(two: IcebergLake) -> None:
    _ddl(two, 3, "ALTER TABLE orders ADD COLUMN note varchar(9)")
    _ddl(two, 4, "ALTER TABLE orders RENAME COLUMN name TO label")
    _ddl(two, 5, "ALTER TABLE orders MODIFY id bigint")
    two.merge()
    assert _ids(two) == {"note": 3, "id": 1, "label": 2}
    assert two.types() == {"note": "string", "id": "long", "label": "string"}
    _ddl(two, 6, "ALTER TABLE orders DROP COLUMN note, ADD COLUMN note int")
    two.merge()
    assert _ids(two) == {"id": 1, "label": 2, "note": 4}  # another column, without the former's values
    assert two.rows() == [{"id": 1, "label": "a", "note": None}, {"id": 2, "label": "b", "note": None}]


def test_a_statement_is_one_commit(two: IcebergLake) -> None:
    _ddl(two, 3, "ALTER TABLE orders ADD COLUMN n int NOT NULL DEFAULT 7, RENAME COLUMN name TO label")
    two.merge()
    assert two.rows() == [{"id": 1, "label": "a", "n": 7}, {"id": 2, "label": "b", "n": 7}]
    assert len(two.table().snapshots()) == 2
    two.take(change(3, None, None, op="ddl", sql="ALTER TABLE orders RENAME COLUMN label TO name"))  # known
    assert _ids(two) == {"id": 1, "label": 2, "n": 3}


def test_names_are_swapped(two: IcebergLake) -> None:
    _ddl(two, 3, "ALTER TABLE orders ADD COLUMN other varchar(9) DEFAULT 'x'")
    _ddl(two, 4, "ALTER TABLE orders RENAME COLUMN name TO other, RENAME COLUMN other TO name")
    two.merge()
    assert two.rows()[0] == {"id": 1, "other": "a", "name": "x"}
    assert _ids(two) == {"id": 1, "other": 2, "name": 3}


@pytest.mark.parametrize(
    "example",
    [
        ("decimal(6,3)", "1.500", "decimal(8,3)", Decimal("1.500"), "decimal(8, 3)"),
        ("float", 0.5, "double", 0.5, "double"),
        ("bigint", 5, "smallint", 5, "long"),  # what is narrower fits
        ("date", date(2026, 1, 2), "date", date(2026, 1, 2), "date"),
    ],
)
def test_values_are_converted(lake: IcebergLake, example: tuple[Any, ...]) -> None:
    source, value, becomes, kept, kind = example
    types = {"id": "int", "c": source}
    lake.take(change(1, {"id": 1, "c": value}, types), change(2, {"id": 2, "c": None}, types))
    lake.merge()
    _ddl(lake, 3, f"ALTER TABLE orders MODIFY c {becomes}")
    lake.merge()
    assert lake.rows() == [{"id": 1, "c": kept}, {"id": 2, "c": None}]
    assert lake.types()["c"] == kind


@pytest.mark.parametrize(
    ("source", "value", "becomes"),
    [
        ("varchar(9)", "5", "int"),
        ("double", 0.1, "float"),
        ("decimal(6,3)", "1.555", "decimal(6,2)"),
        ("time", "10:00:00", "time(3)"),
        ("decimal(6,3)", "1.500", "decimal(8,4)"),
        ("decimal(6,3)", "1.555", "decimal(5,2)"),
        ("int", 5, "varchar(20)"),
        ("int", 5, "bigint unsigned"),
        ("datetime", datetime(2026, 1, 2, 3), "date"),
        ("set('a','b')", ("a", "b"), "set('b','a')"),
    ],
)
def test_what_has_no_conversion_here_is_refused(
    lake: IcebergLake, source: str, value: Any, becomes: str
) -> None:
    types = {"id": "int", "c": source}
    lake.take(change(1, {"id": 1, "c": value}, types))
    lake.merge()
    before = lake.types()
    with pytest.raises(Rejected, match="cannot be changed like its source"):
        _ddl(lake, 2, f"ALTER TABLE orders MODIFY c {becomes}, ADD COLUMN d int")
    assert lake.types() == before


def test_rows_widen_columns_without_a_statement(lake: IcebergLake) -> None:
    types = {"id": "int", "c": "int", "d": "decimal(4,2)"}
    lake.take(change(1, {"id": 1, "c": 5, "d": "1.50"}, types))
    lake.merge()
    types = {"id": "int", "c": "bigint", "d": "decimal(6,2)"}
    lake.take(change(2, {"id": 2, "c": 10**10, "d": "1000.55"}, types))
    lake.merge()
    assert lake.rows() == [
        {"id": 1, "c": 5, "d": Decimal("1.50")},
        {"id": 2, "c": 10**10, "d": Decimal("1000.55")},
    ]
    with pytest.raises(Rejected, match="cannot hold values that are kept as string"):
        lake.take(change(3, {"id": 3, "c": "x", "d": None}, {**types, "c": "varchar(9)"}))


@pytest.mark.parametrize(
    "clause",
    [
        "n int NOT NULL AUTO_INCREMENT UNIQUE",
        "n int AS (id + 1)",
        "n varchar(36) DEFAULT (uuid())",
        "n int DEFAULT 1.55",
        "n time DEFAULT '0'",
    ],
)
def test_a_column_whose_values_only_the_source_knows_is_refused_if_there_are_rows(
    lake: IcebergLake, clause: str
) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}), change(2, None, op="delete", before={"id": 1, "name": "a"}))
    lake.merge()
    _ddl(lake, 3, f"ALTER TABLE orders ADD COLUMN {clause}")
    types = {"id": "int", "name": "varchar(20)", "n": clause.split()[1]}
    lake.take(change(4, {"id": 1, "name": "a", "n": 1}, types))
    lake.merge()
    with pytest.raises(Rejected, match="only the source knows the values of m in rows that exist"):
        _ddl(lake, 5, f"ALTER TABLE orders ADD COLUMN {clause.replace('n ', 'm ', 1)}")


def test_a_zero_date_of_a_new_column_is_null(lake: IcebergLake) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}))
    _ddl(lake, 2, "ALTER TABLE orders ADD COLUMN at datetime NOT NULL DEFAULT '0000-00-00 00:00:00'")
    assert lake.rows() == [{"id": 1, "name": "a", "at": None}]


@pytest.mark.parametrize("partition", ["name", "truncate(1, name)"])
def test_a_column_stays_if_files_are_or_were_partitioned_by_it(make_lake: MakeLake, partition: str) -> None:
    lake = make_lake(partition_by=[partition])
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    for offset in (2, 3):
        with pytest.raises(Rejected, match="partitioned or sorted by name, which has to stay"):
            _ddl(lake, offset, "ALTER TABLE orders DROP COLUMN name")
        for field in lake.table().spec().fields:
            with lake.table().update_spec() as update:
                update.remove_field(field.name)
    lake.take(change(4, {"id": 1}, {"id": "int"}), change(5, {"id": 2}, {"id": "int"}))
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def test_a_truncate_empties_a_replica_and_ends_a_history(make_lake: MakeLake) -> None:
    for mode, left in (("replica", 0), ("history", 2)):
        lake = make_lake(mode=mode, table=f"{mode}.{{table}}")
        lake.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": "b"}))
        lake.take(change(3, None, None, op="truncate"))
        lake.take(change(4, {"id": 3, "name": "c"}))
        lake.merge()
        rows = lake.rows(f"{mode}.orders")
        assert len(rows) == left + 1
        assert [row["id"] for row in rows if row.get("cdc_current", True)] == [3]


@pytest.mark.parametrize("sql", ["DROP TABLE orders", "RENAME TABLE orders TO former"])
def test_a_table_is_not_dropped_or_renamed(make_lake: MakeLake, sql: str) -> None:
    lake = make_lake()
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    with pytest.raises(Rejected, match="not renamed or dropped here"):
        _ddl(lake, 2, sql)
    lake.crash()
    assert lake.rows() == [{"id": 1, "name": "a"}]
    lake.close()
    allowed = make_lake(ddl={"drop_tables": False, "rename_tables": False})
    _ddl(allowed, 2, sql)
    allowed.take(change(3, {"id": 2, "name": "b"}))
    allowed.merge()
    assert [row["id"] for row in allowed.rows()] == [1, 2]


def test_a_statement_that_drops_another_history_too_is_refused(make_lake: MakeLake) -> None:
    """Its record concerns one of them, so the other's versions would stay current."""
    lake = make_lake(mode="history")
    for offset, table in enumerate(("shop.orders", "shop.items"), 1):
        lake.take(change(offset, {"id": 1, "name": "a"}), table=table)
    lake.merge()
    with pytest.raises(Rejected, match="not renamed or dropped here"):
        _ddl(lake, 3, "DROP TABLE orders, items")
    _ddl(lake, 4, "DROP TABLE orders, unknown")
    current = [lake.rows(each)[0]["cdc_current"] for each in ("shop.orders", "shop.items")]
    assert current == [False, True]


def test_a_changelog_keeps_statements_as_rows(make_lake: MakeLake) -> None:
    lake = make_lake(mode="changelog")
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    _ddl(lake, 2, "ALTER TABLE orders ADD COLUMN n int")
    types = {"id": "int", "name": "varchar(20)", "n": "int"}
    before = {"id": 1, "name": "a", "n": None}
    lake.take(change(3, {"id": 1, "name": "b", "n": 1}, types, op="update", before=before))
    lake.merge()
    rows = sorted(lake.rows(), key=lambda row: row["cdc_offset"])
    assert [(row["cdc_op"], row["n"], row["cdc_before"] and row["cdc_before"]["name"]) for row in rows] == [
        ("insert", None, None),
        ("ddl", None, None),
        ("update", 1, "a"),
    ]


def test_a_statement_that_was_followed_is_not_repeated(two: IcebergLake) -> None:
    """A worker that is killed between the commit and its record repeats it."""
    _ddl(two, 3, "ALTER TABLE orders ADD COLUMN n int NOT NULL DEFAULT 7")
    two.merge()
    with two.handler._open.table("shop", "orders") as sink:  # type: ignore[union-attr]
        statement = change(3, None, None, op="ddl", sql="ALTER TABLE orders DROP COLUMN n")
        assert sink._work.following.follow(statement, ("id",), ("cdc",), bool).done == ()
    assert two.rows()[0] == {"id": 1, "name": "a", "n": 7}


def test_a_required_column_of_somebody_else_stays_required(lake: IcebergLake) -> None:
    lake.catalog.create_namespace("shop")
    number = NestedField(1, "id", IntegerType(), required=True)
    schema = Schema(number, NestedField(2, "name", StringType()), identifier_field_ids=[1])
    lake.catalog.create_table("shop.orders", schema)
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    _ddl(lake, 2, "ALTER TABLE orders MODIFY id bigint, ADD COLUMN n int DEFAULT 7")
    lake.take(
        change(3, {"id": 2**40, "name": "b", "n": 8}, {"id": "bigint", "name": "varchar(9)", "n": "int"})
    )
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "a", "n": 7}, {"id": 2**40, "name": "b", "n": 8}]
    assert [each.required for each in lake.table().schema().fields] == [True, False, False]
