"""`binlane verify` before any Spark is there: what it cannot compare, and what it says while one starts."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner
from verify_lab import Stage, url
from view_lab import shape

from handlers.spark.runtime.versions import JavaError
from worker.cli import app
from worker.configuration import ConfigurationError
from worker.verifying import spark_lakes

ITEMS = shape(id=pa.int64(), name=pa.string(), price=pa.decimal128(10, 2))
ONE = Decimal(1)
REPLICA = {"type": "spark", "mode": "replica"}
SQL = {"type": "sql", "url": "sqlite:///target.db"}
HISTORY = {"type": "spark", "mode": "history"}


def verify(folder: Path, handlers: list[dict[str, Any]], *arguments: str) -> Any:
    kafka = {"bootstrap_servers": "localhost:1", "group_id": "looking", "topics": ["cdc"]}
    tables = [{"match": "shop.*", "handlers": handlers}]
    (folder / "c.yaml").write_text(
        json.dumps({"kafka": kafka, "tables": tables, "spark": {"warehouse": "lake"}})
    )
    database = folder / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
    command = ["verify", str(folder / "c.yaml"), "--against", f"sqlite:///{database}", *arguments]
    return CliRunner().invoke(app, command, standalone_mode=False)


@pytest.mark.parametrize(
    ("handlers", "only"),
    [([SQL], "sql"), ([SQL, {"type": "log"}], "sql, log"), ([HISTORY], "spark with mode: history")],
)
def test_a_configuration_without_spark_replicas_is_refused(
    tmp_path: Path, handlers: list[dict[str, Any]], only: str
) -> None:
    result = verify(tmp_path, handlers)
    assert isinstance(result.exception, ConfigurationError)
    told = f"verify compares Spark replicas (type: spark, mode: replica); this configuration has only {only}"
    assert str(result.exception) == f"{tmp_path / 'c.yaml'}: {told}"


def test_how_far_it_is_stands_on_standard_error_but_for_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*arguments: object) -> None:
        raise JavaError("no Java here")

    monkeypatch.setattr(spark_lakes, "acquire", none)
    log = tmp_path / "lake/shop/orders/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{}\n")
    result = verify(tmp_path, [REPLICA])
    assert result.return_value == 1
    assert result.stderr.splitlines() == ["shop.orders: table 1 of 1", spark_lakes.STARTING]
    assert verify(tmp_path, [REPLICA], "--json").stderr == ""


def test_no_spark_starts_for_tables_in_folders(
    tmp_path: Path, shop: sa.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_lakes, "acquire", None)  # Spark does not start
    stage = Stage(tmp_path, None)
    table = stage.replicate(
        "items", ITEMS, {"id": 1, "name": "n", "price": ONE}, {"id": 3, "name": "n", "price": ONE}
    )
    merged = pa.table({"id": [2, 3], "name": ["n", "x"], "price": [ONE, ONE]})
    deltalake.write_deltalake(table.path, merged)
    shop.exec_driver_sql("INSERT INTO items VALUES (1, 'n', 1), (2, 'n', 1), (3, 'n', 1)")
    assert stage.verify(url(shop))[0] == 0
    shop.exec_driver_sql("DELETE FROM items WHERE id = 2")
    [table_told] = stage.verify(url(shop))[1]["tables"]
    assert [each["row"] for each in table_told["differences"]] == ["surplus"]
    [table_told] = stage.verify(url(shop), "--through", "table")[1]["tables"]
    assert {each["key"]["id"]: each["row"] for each in table_told["differences"]} == {
        "1": "missing", "2": "surplus", "3": "different",
    }  # fmt: skip


@pytest.mark.parametrize("into", ["shops", "shop"])
def test_gathered_tables_without_a_replica_are_told(tmp_path: Path, shop: sa.Connection, into: str) -> None:
    stage = Stage(tmp_path, None)
    stage.configure([{"match": f"{into}.*", "handlers": [REPLICA]}])
    configured = json.loads(stage.config.read_text())
    configured["databases"] = {into: {"match": "shop*.*"}}
    stage.config.write_text(json.dumps(configured))
    shop.exec_driver_sql("CREATE TABLE void (id INTEGER PRIMARY KEY)")
    assert stage.verify(url(shop)) == (0, {"equal": True, "error": None, "tables": []})
    shop.exec_driver_sql("INSERT INTO items VALUES (1, 'n', 1)")
    code, told = stage.verify(url(shop), f"{into}.items", f"{into}.void")
    [table] = told["tables"]
    assert (code, table["table"], table["state"]) == (1, f"{into}.items", "no replica")


def test_gathered_tables_are_not_compared(tmp_path: Path, shop: sa.Connection) -> None:
    """Rows of the other databases would be surplus, and a repair would delete them."""
    shop.exec_driver_sql("INSERT INTO items VALUES (1, 'n', 1)")
    for into in ("shops", "shop"):
        stage = Stage(tmp_path, None)
        stage.configure([{"match": "*", "handlers": [REPLICA]}])
        configured = json.loads(stage.config.read_text())
        configured["databases"] = {into: {"match": "shop*.*"}}
        stage.config.write_text(json.dumps(configured))
        path = tmp_path / "lake" / into / "items"
        deltalake.write_deltalake(path, pa.table({"tenant": ["shop_1"], "id": [7], "name": ["n"]}))
        code, told = stage.verify(url(shop), f"{into}.*", "--repair")
        [table] = told["tables"]
        assert (code, table["table"], table["state"]) == (1, f"{into}.items", "failed")
        assert table["error"] == "it has rows of several databases, and is not compared"
