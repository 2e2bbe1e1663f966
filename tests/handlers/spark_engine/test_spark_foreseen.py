"""The shape of rows behind a statement, as the lane foresees it; or that only Spark can tell."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from spark_lake import change

from handlers.mysql.ddl import TableName
from handlers.mysql.ddl.rules import DDLRules
from handlers.spark.delta.evolving import TableState
from handlers.spark.engine.table.foreseen import Foreseen, SeenTable
from handlers.spark.rows.shape import Shape

SHAPE = Shape(pa.schema([("id", pa.int32()), ("name", pa.string()), ("n", pa.int32())]), ("id",))


def after(
    sql: str,
    mode: Any = "replica",
    rules: Any = True,
    fixed: Collection[str] | None = (),
    **overrides: pa.DataType,
) -> dict[str, str] | None:
    own = TableName("shop", "t")
    foreseen = Foreseen(own, DDLRules.model_validate(rules), overrides, mode, "_", fixed)
    op = "truncate" if sql == "TRUNCATE" else "ddl"
    found = foreseen.after(change(0, None, None, op=op, sql=sql), SHAPE)
    assert found is None or found.key == ("id",)
    return None if found is None else {field.name: str(field.type) for field in found.schema}


OLD = {"id": "int32", "name": "string", "n": "int32"}


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("TRUNCATE", OLD),
        ("TRUNCATE TABLE t", OLD),
        ("ALTER TABLE t ADD x bigint", {**OLD, "x": "int64"}),
        ("ALTER TABLE t ADD x date, ADD y text", {**OLD, "x": "date32[day]", "y": "string"}),
        ("ALTER TABLE t ADD x date FIRST", {"x": "date32[day]", **OLD}),
        ("ALTER TABLE t ADD x int AFTER ID", {"id": "int32", "x": "int32", "name": "string", "n": "int32"}),
        ("ALTER TABLE t DROP COLUMN N", {"id": "int32", "name": "string"}),
        ("ALTER TABLE t RENAME COLUMN n TO m", {"id": "int32", "name": "string", "m": "int32"}),
        ("ALTER TABLE t MODIFY n bigint", {**OLD, "n": "int64"}),
        ("ALTER TABLE t MODIFY n decimal(12,2)", {**OLD, "n": "decimal128(12, 2)"}),
        ("ALTER TABLE t MODIFY name varchar(5)", OLD),
    ],
)  # fmt: skip
def test_rows_behind_a_statement_are_foreseen(sql: str, columns: dict[str, str]) -> None:
    assert after(sql) == columns


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t MODIFY name int",  # values may have no place in it
        "ALTER TABLE t MODIFY n smallint",
        "ALTER TABLE t MODIFY name time",
        "ALTER TABLE t MODIFY id bigint",  # the key
        "ALTER TABLE t DROP COLUMN id",
        "ALTER TABLE t RENAME COLUMN id TO key",
        "ALTER TABLE t RENAME COLUMN n TO name",  # it is there
        "ALTER TABLE t RENAME COLUMN gone TO x",
        "ALTER TABLE t RENAME COLUMN n TO m, RENAME COLUMN name TO n",
        "ALTER TABLE t DROP COLUMN n, ADD n text",
        "ALTER TABLE t ADD name text",
        "ALTER TABLE t ADD _op text",
        "ALTER TABLE t ADD x int AFTER gone",
        "ALTER TABLE t DROP PRIMARY KEY",
        "ALTER TABLE other ADD x int",
        "ALTER TABLE t RENAME TO u",
        "RENAME TABLE t TO u",
        "DROP TABLE t",
        "CREATE TABLE t (id int primary key)",
        "ALTER TABLE t ADD INDEX (n)",
        "ALTER TABLE t ADD (",
        "",
    ],
)
def test_what_only_spark_can_judge_is_not_foreseen(sql: str) -> None:
    assert after(sql) is None


def test_a_statement_that_is_switched_off_is_not_foreseen() -> None:
    assert after("TRUNCATE", rules={"truncate": False}) is None
    assert after("ALTER TABLE t ADD x int, DROP n", rules={"drop_columns": False}) is None
    assert after("ALTER TABLE t ADD x int", rules={"drop_columns": False}) is None, "it may be there still"
    assert after("ALTER TABLE t MODIFY n bigint", rules={"retype_columns": False}) is None


def test_a_history_may_have_a_column_of_that_name_from_before() -> None:
    assert after("ALTER TABLE t ADD x int", mode="history") is None
    assert after("ALTER TABLE t RENAME COLUMN n TO m", mode="history") is None
    assert after("ALTER TABLE t DROP n", mode="history") == {"id": "int32", "name": "string"}
    assert after("ALTER TABLE t ADD valid_to int") == {**OLD, "valid_to": "int32"}


def test_a_type_of_the_configuration_wins() -> None:
    assert after("ALTER TABLE t ADD x int", x=pa.string()) == {**OLD, "x": "string"}
    assert after("ALTER TABLE t MODIFY n bigint", n=pa.int32()) == OLD
    assert after("ALTER TABLE t RENAME COLUMN n TO m", n=pa.int32()) is None


@pytest.mark.parametrize(
    "sql", ["DROP n", "RENAME COLUMN n TO m", "RENAME COLUMN name TO N2", "MODIFY n bigint"]
)
def test_a_column_that_the_table_is_partitioned_by_is_not_foreseen(sql: str) -> None:
    assert after(f"ALTER TABLE t {sql}") is not None
    assert after(f"ALTER TABLE t {sql}", fixed={"n", "n2"}) is None
    assert after("ALTER TABLE t ADD x int", fixed={"n"}) is not None
    assert after("TRUNCATE", fixed={"n"}) == OLD


def test_of_a_table_that_is_not_known_nothing_is_foreseen_but_that_it_is_emptied() -> None:
    assert after("ALTER TABLE t ADD x int", fixed=None) is None
    assert after("ALTER TABLE t DROP n", fixed=None) is None
    assert after("TRUNCATE", fixed=None) == after("TRUNCATE TABLE t", fixed=None) == OLD


ID, NAME, N = (
    StructField("ID", IntegerType()),
    StructField("name", StringType(), metadata={"delta.columnMapping.id": 2, "comment": "whose"}),
    StructField("n", IntegerType()),
)


def seen(
    *columns: StructField, mode: Any = "replica", properties: dict[str, str] | None = None
) -> frozenset[str] | None:
    state = TableState(StructType(list(columns)), ("Name",), properties or {}, 0, frozenset())
    found = SeenTable.of(state, SHAPE, mode=mode, prefix="_", partition_by=["N"])
    assert found is None or found.shape == SHAPE
    return None if found is None else found.fixed


def test_a_table_with_just_the_columns_of_the_log_is_known() -> None:
    assert seen(N, ID, NAME) == {"name", "n"}
    none = SeenTable.of(None, SHAPE, mode="replica", prefix="_", partition_by=["N"])
    assert none == SeenTable(SHAPE, frozenset("n")), "the first rows will make it"


def test_a_table_with_other_columns_or_types_is_not_known() -> None:
    assert seen(ID, NAME) is None
    assert seen(ID, NAME, StructField("n", LongType())) is None
    assert seen(ID, NAME, N, StructField("kept", StringType())) is None


def test_a_table_of_which_somebody_declared_something_is_not_known() -> None:
    assert seen(ID, NAME, N, properties={"delta.constraints.short": "length(name) < 5"}) is None
    assert seen(ID, NAME, N, properties={"delta.columnMapping.mode": "name"}) is not None
    generated = StructField("n", IntegerType(), metadata={"delta.generationExpression": "id + 1"})
    assert seen(ID, NAME, generated) is None


def test_a_history_may_have_more_columns_than_the_source() -> None:
    kept = StructField("kept", StringType())
    assert seen(ID, NAME, N, kept, StructField("_current", StringType()), mode="history") is not None
    assert seen(ID, NAME, StructField("n", LongType()), mode="history") is None
