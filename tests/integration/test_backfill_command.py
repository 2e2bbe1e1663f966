"""`binlane backfill`: the signal that Debezium reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from forked_commands import forked_binlane
from topic_messages import messages

from worker.local.broker import Broker

HERE = Path(__file__).parents[2]
TABLES = [{"match": "sho?.*", "handlers": [{"type": "log"}]}]


def run(folder: Path, *arguments: str, servers: str = "localhost:1", code: int = 0, **sections: Any) -> str:
    kafka = {"bootstrap_servers": servers, "group_id": "g", "topics": ["my.shop.orders"]}
    config = folder / "binlane.yaml"
    config.write_text(yaml.safe_dump({"kafka": kafka, "format": "debezium", "tables": TABLES, **sections}))
    done = forked_binlane(["backfill", config, *arguments], HERE, {})
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.mark.parametrize(
    ("table", "told"),
    [("shop.orders", "shop.orders"), ("shop.a$b", "shop.a[$]b"), ('shop.^\\"', 'shop.\\^\\\\"')],
)
def test_the_signal_is_in_the_topic_as_debezium_reads_it(
    tmp_path: Path, broker: Broker, topic: str, table: str, told: str
) -> None:
    arguments = ("--table", table, "--connector", "my", "--topic", topic)
    assert topic in run(tmp_path, *arguments, servers=broker.bootstrap_servers)
    [sent] = messages(broker.bootstrap_servers, topic)
    value = json.loads(sent.value() or b"")
    assert value.pop("id")
    assert value == {
        "type": "execute-snapshot",
        "data": {"data-collections": [told], "type": "incremental"},
    }
    assert (sent.key(), sent.partition()) == (b"my", 0)


def test_a_topic_that_does_not_exist_is_not_made(tmp_path: Path, broker: Broker) -> None:
    arguments = ("--table", "shop.orders", "--connector", "nope")
    for _ in range(2):
        told = run(tmp_path, *arguments, servers=broker.bootstrap_servers, code=1)
        assert "there is no topic nope-signal" in told


def test_without_a_connector_it_is_a_statement(tmp_path: Path) -> None:
    statement = run(tmp_path, "--table", "shop.it's")
    assert statement.startswith("INSERT INTO debezium_signal VALUES ('")
    told = """', 'execute-snapshot', '{"data-collections":["shop.it''s"],"type":"incremental"}');\n"""
    assert statement.endswith(told)


@pytest.mark.parametrize("name", ['"', "\\", "^"])
def test_what_databases_read_differently_is_no_statement(tmp_path: Path, name: str) -> None:
    """MySQL reads `\\"` in a text as a quote, unless NO_BACKSLASH_ESCAPES is set. PostgreSQL does not."""
    told = run(tmp_path, "--table", f"shop.{name}", code=1)
    assert "read a backslash in a text differently: send it by --connector" in told


def test_a_table_of_a_gathered_database_has_its_own_name(tmp_path: Path) -> None:
    databases = {"shop": {"match": "tenant_*.*"}}
    assert "tenant_1.orders" in run(tmp_path, "--table", "tenant_1.orders", databases=databases)
    assert "no rule of tables: matches tenant_1.orders" in run(tmp_path, "--table", "tenant_1.orders", code=1)


@pytest.mark.parametrize("table", ["orders", "", ".", "shop.", ".orders", "shop.*", "/shop.orders/"])
def test_what_names_no_table_is_refused(tmp_path: Path, table: str) -> None:
    """Debezium would only log that it has no such table."""
    tables = [{"match": "*", "handlers": [{"type": "log"}]}]
    told = run(tmp_path, "--table", table, code=1, tables=tables)
    assert f"{table!r} is not the name of one table: write database.table" in told


def test_the_name_under_which_tables_are_gathered_is_refused(tmp_path: Path) -> None:
    databases = {"shop": {"match": "tenant_*.*"}}
    told = run(tmp_path, "--table", "shop.orders", code=1, databases=databases)
    assert "databases: shop is no database of the source: name the table as there" in told
    own = {"shop": {"match": "/(shop|tenant_1)\\..*/"}}
    assert "shop.orders" in run(tmp_path, "--table", "shop.orders", databases=own)


@pytest.mark.parametrize("name", ["canal", {"^my": "maxwell"}])
def test_other_tools_are_told_of(tmp_path: Path, name: Any) -> None:
    told = run(tmp_path, "--table", "shop.orders", code=1, format=name)
    assert "maxwell-bootstrap" in told
    assert "binlane reload" in told


def test_kafka_that_does_not_answer_is_told(tmp_path: Path) -> None:
    told = run(tmp_path, "--table", "shop.orders", "--connector", "my", code=1)
    assert "Kafka: " in told
