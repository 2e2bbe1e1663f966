"""After a statement, rows that exist have the source's values, or the statement is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lab import IcebergLake, change
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType

from handlers import Rejected

MakeLake = Callable[..., IcebergLake]


def _ddl(lake: IcebergLake, offset: int, sql: str) -> None:
    lake.take(change(offset, None, None, op="ddl", sql=sql))


@pytest.mark.parametrize("mode", ["replica", "history"])
@pytest.mark.parametrize("name", ["note", "NOTE"])
def test_a_kept_column_that_the_source_adds_again_is_another_one(
    make_lake: MakeLake, mode: str, name: str
) -> None:
    lake = make_lake(mode=mode, ddl={"drop_columns": False})
    types = {"id": "int", "name": "varchar(20)", "note": "varchar(9)"}
    lake.take(change(1, {"id": 1, "name": "a", "note": "former"}, types))
    _ddl(lake, 2, "ALTER TABLE orders DROP COLUMN note")
    lake.take(change(3, {"id": 2, "name": "b"}))
    lake.merge()
    assert [row["note"] for row in lake.rows()] == ["former", None]
    _ddl(lake, 4, f"ALTER TABLE orders ADD COLUMN {name} varchar(9) NOT NULL DEFAULT 'new'")
    lake.merge()
    assert [row["note"] for row in lake.rows()] == ["new", "new"]


@pytest.mark.parametrize(
    "clauses",
    [
        "DROP COLUMN name, ADD COLUMN name varchar(9)",
        "RENAME COLUMN id TO name, RENAME COLUMN name TO id",
        "DROP COLUMN id, RENAME COLUMN name TO id",
    ],
)
def test_a_name_that_files_without_ids_have_is_not_given_again(
    lake: IcebergLake, tmp_path: Path, clauses: str
) -> None:
    lake.catalog.create_namespace("shop")
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()))
    table = lake.catalog.create_table("shop.orders", schema)
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]}), tmp_path / "theirs.parquet")
    table.add_files([str(tmp_path / "theirs.parquet")])
    lake.take(change(1, {"id": 2, "name": "b"}))
    lake.merge()
    with pytest.raises(Rejected, match=r"files without ids may have another '(name|id)'"):
        _ddl(lake, 2, f"ALTER TABLE orders {clauses}")
    _ddl(lake, 3, "ALTER TABLE orders RENAME COLUMN name TO label, ADD COLUMN n int DEFAULT 7")
    _ddl(lake, 4, "ALTER TABLE orders RENAME COLUMN label TO name")
    assert lake.rows() == [{"id": 1, "name": "a", "n": 7}, {"id": 2, "name": "b", "n": 7}]


@pytest.mark.parametrize(
    ("source", "value", "becomes", "is_refused"),
    [
        ("datetime(6)", datetime(2026, 1, 2, 3, 4, 5, 600000), "datetime", True),
        ("datetime(6)", datetime(1960, 1, 2, 3, 4, 5, 654321), "datetime(3)", True),
        ("timestamp(6)", datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC), "timestamp(5)", True),
        ("datetime(6)", datetime(1, 1, 2, 3, 4, 5, 600000), "datetime(1) NOT NULL", False),
        ("timestamp(6)", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), "timestamp", False),
        ("varchar(9)", "a ", "char(9)", True),
        ("varchar(9)", " a", "character(9)", False),
        ("char(9)", "a", "varchar(9)", False),
        ("float", 0.1, "float", False),
        ("double", 0.125, "double(10,2)", True),
        ("decimal(50,4)", Decimal("1.5000"), "decimal(50,2)", True),
        ("decimal(50,4)", Decimal("1.5000"), "decimal(60,4)", False),
        ("float", 0.125, "double(10,2)", True),
        ("smallint", 5, "year", True),
        ("bigint", 5, "year", True),
        ("bigint", 5, "int", False),
        ("year", 2026, "year NOT NULL", False),
        ("set('a','b')", ("a", "b"), "set('b','a')", True),
        ("set('a','b')", ("a", "b"), "set('a','b','c')", False),
    ],
)
def test_a_type_that_changes_values_in_the_source_is_refused(
    lake: IcebergLake, source: str, value: Any, becomes: str, is_refused: bool
) -> None:
    types = {"id": "int", "c": source}
    lake.take(change(1, {"id": 1, "c": None}, types))
    lake.merge()
    lake.take(change(2, {"id": 2, "c": value}, types))
    lake.merge()
    before = lake.rows()
    if is_refused:
        with pytest.raises(Rejected, match="the values of c may change with its type"):
            _ddl(lake, 3, f"ALTER TABLE orders MODIFY c {becomes}")
    else:
        _ddl(lake, 3, f"ALTER TABLE orders MODIFY c {becomes}")
    lake.merge()
    assert lake.rows() == before


def test_a_column_that_becomes_a_generated_one_is_refused_if_there_are_rows(lake: IcebergLake) -> None:
    generated = "ALTER TABLE orders MODIFY n int AS (id + 1) STORED"
    types = {"id": "int", "n": "int"}
    lake.take(change(1, {"id": 1, "n": 1}, types))
    lake.merge()
    with pytest.raises(Rejected, match="only the source knows the values of n in rows that exist"):
        _ddl(lake, 2, generated)
    lake.take(change(3, None, None, op="truncate"))
    _ddl(lake, 4, generated)
    lake.take(change(5, {"id": 1, "n": 2}, types))
    lake.merge()
    assert lake.rows() == [{"id": 1, "n": 2}]
