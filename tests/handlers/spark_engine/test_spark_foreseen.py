"""The shape of rows behind a statement, as the lane foresees it; or that only Spark can tell."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from spark_lake import change

from handlers.mysql.ddl import TableName
from handlers.mysql.ddl.rules import DDLRules
from handlers.spark.engine.table.foreseen import Foreseen
from handlers.spark.rows.shape import Shape

SHAPE = Shape(pa.schema([("id", pa.int32()), ("name", pa.string()), ("n", pa.int32())]), ("id",))


def after(
    sql: str, mode: Any = "replica", rules: Any = True, **overrides: pa.DataType
) -> dict[str, str] | None:
    foreseen = Foreseen(TableName("shop", "t"), DDLRules.model_validate(rules), overrides, mode, "_")
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
