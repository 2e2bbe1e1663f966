"""Column rules and DDL into real targets: a hidden value is in none of them, and the DDL goes on under the
rules' names."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from canal_users import HIDDEN, RULES, batches
from delta_reading import column_types, read_delta
from pyspark.sql import SparkSession
from ruling import hashed, rule_of
from servers.postgres_server import PostgresServer
from spark_sessions import LIGHT, SparkKeeper

from handlers import Handler
from handlers.spark import SparkHandler
from handlers.sql import SqlHandler
from handlers.testing import opened

EXPECTED = [
    # id, email, title, state, city, origin
    (2, hashed(f"{HIDDEN}2@x"), "n2", "active", "Rome", "cdc"),
    (3, hashed(f"{HIDDEN}3@x"), "n3", None, "Rome", "cdc"),
]
NAMES = ("id", "email", "title", "state", "city", "origin")


def apply_all(handler: Handler) -> None:
    for batch in batches(rule_of(**RULES)):
        handler.handle(batch)
    for batch in batches(rule_of(**RULES)):  # as after a crash: all of it is done already
        handler.handle(batch)


def test_nothing_that_is_hidden_reaches_postgresql_and_ddl_goes_by_the_rules(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_database("columns")
    with opened(SqlHandler(url=url), tmp_path) as handler:
        apply_all(handler)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT * FROM shop.users").mappings().all()
        tables = connection.exec_driver_sql(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        ).all()
        for schema, name in tables:
            everything = connection.exec_driver_sql(f'SELECT t::text FROM "{schema}"."{name}" t').all()
            assert HIDDEN not in repr(everything)
        defaults = connection.exec_driver_sql("SELECT column_default FROM information_schema.columns").all()
        assert HIDDEN not in repr(defaults)
    engine.dispose()
    assert set(found[0]) == set(NAMES)
    assert sorted(tuple(row[name] for name in NAMES) for row in found) == EXPECTED


@pytest.mark.soak
def test_nothing_that_is_hidden_reaches_a_spark_replica_and_ddl_goes_by_the_rules(
    spark_keeper: SparkKeeper, tmp_path: Path
) -> None:
    spark_keeper.get()
    table = tmp_path / "lake" / "shop" / "users"
    with opened(
        SparkHandler(mode="replica", merge={"max_age": "1h", "at_close": "5m"}), tmp_path, spark=LIGHT
    ) as handler:
        apply_all(handler)
        assert_nothing_is_hidden_in(tmp_path)
    assert_nothing_is_hidden_in(tmp_path)
    rows = read_delta(table, ", ".join(NAMES), spark=SparkSession.builder.getOrCreate)
    assert sorted(tuple(row[name] for name in NAMES) for row in rows) == EXPECTED
    assert set(column_types(table)) == set(NAMES)


def assert_nothing_is_hidden_in(folder: Path) -> None:
    """Not in the table's files, nor in what waits beside it."""
    for file in folder.rglob("*"):
        if file.is_file():
            held = (
                repr(pq.read_table(file).to_pylist())
                if file.suffix == ".parquet"
                else file.read_text("latin-1")
            )
            assert HIDDEN not in held, file
