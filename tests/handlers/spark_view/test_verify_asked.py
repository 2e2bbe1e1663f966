"""`binlane verify` before any Spark is there: what it cannot compare, and what it says while one starts."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from handlers.spark.runtime.java import JavaError
from worker.cli import app
from worker.configuration import ConfigurationError
from worker.verifying import spark_lakes

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
    (log / f"{0:020d}.json").write_text("")
    result = verify(tmp_path, [REPLICA])
    assert result.return_value == 1
    assert result.stderr.splitlines() == ["shop.orders: table 1 of 1", spark_lakes.STARTING]
    assert verify(tmp_path, [REPLICA], "--json").stderr == ""
