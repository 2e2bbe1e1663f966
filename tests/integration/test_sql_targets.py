"""A database that a worker writes to: a row that it cannot take stands alone, one that waits for another is
applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from confluent_kafka import Producer
from integration.conftest import MakeStage
from integration.letters import letters, with_dead_letters
from integration.stage import Stage
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer

from worker.local.broker import Broker

LARGE = 40 << 20
"""Bytes of a record that Kafka takes."""
QUICK = {"max_attempts": 2, "initial_delay": "50ms", "max_delay": "200ms"}


def insert(table: str, types: Mapping[str, str], *row: Any) -> bytes:
    data = {name: None if value is None else str(value) for name, value in zip(types, row, strict=True)}
    told = {
        "database": "shop",
        "table": table,
        "type": "INSERT",
        "isDdl": False,
        "pkNames": ["id"],
        "old": None,
    }
    more = {"data": [data], "mysqlType": dict(types), "sqlType": {}, "es": 1, "ts": 1, "id": 1, "sql": ""}
    return json.dumps({**told, **more, "sql": ""}).encode()


def send(stage: Stage, records: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": stage.bootstrap_servers, "message.max.bytes": LARGE})
    for record in records:
        producer.produce(stage.topic, record, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.exec_driver_sql(sql)]
    engine.dispose()
    return found


def test_a_row_larger_than_the_servers_packets_is_one_dead_letter(
    make_stage: MakeStage, broker: Broker, mariadb: MariaDBServer
) -> None:
    stage = make_stage(1, **{"max.message.bytes": str(LARGE)})
    broker.create_topic(f"{stage.topic}.dead", 1, **{"max.message.bytes": str(LARGE)})
    url, types = mariadb.new_database("target"), {"id": "int", "n": "longtext"}
    docs = [insert("docs", types, number, "y" * (20 << 20 if number == 4 else 1)) for number in range(1, 7)]
    send(stage, [*docs, *(insert("other", types, number, "x") for number in range(50))])
    handler = {"type": "sql", "url": url, "schema": "target"}
    table = {"match": "*", "handlers": [handler], "on_failure": "dead_letter", "retry": QUICK}
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage)).start()
    stage.wait_committed_to_the_end()
    [letter] = letters(stage)
    error = dict(letter.headers() or [])["binlane.error"] or b""
    assert (letter.value(), b"max_allowed_packet" in error) == (docs[3], True)
    assert rows(url, "SELECT id FROM docs ORDER BY id") == [(1,), (2,), (3,), (5,), (6,)]
    assert rows(url, "SELECT count(*) FROM other") == [(50,)]
    assert worker.logged("target_down") == []
    assert worker.sigterm() == 0


@pytest.mark.parametrize("order", ["table", "row"])
def test_children_wait_for_parents_in_other_lanes(
    stage: Stage, broker: Broker, postgres: PostgresServer, order: str
) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    url = postgres.new_database("target")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA shop")
        connection.exec_driver_sql("CREATE TABLE shop.customers (id int PRIMARY KEY)")
        reference = "int REFERENCES shop.customers (id)"
        connection.exec_driver_sql(f"CREATE TABLE shop.orders (id int PRIMARY KEY, customer {reference})")
    engine.dispose()
    pairs = [
        (
            insert("customers", {"id": "int"}, number),
            insert("orders", {"id": "int", "customer": "int"}, number, number),
        )
        for number in range(300)
    ]
    send(stage, [record for pair in pairs for record in pair])
    retry = {"max_attempts": 20, "initial_delay": "50ms", "max_delay": "500ms"}
    common = {"handlers": [{"type": "sql", "url": url}], "on_failure": "dead_letter", "retry": retry}
    tables = [
        {"match": "shop.customers", "batch": {"max_wait": "1s"}, **common},
        {"match": "*", **common},
    ]
    lanes = {"count": 4, "order_by": order}
    worker = stage.worker(tables=tables, lanes=lanes, dead_letter=with_dead_letters(stage)).start()
    stage.wait_committed_to_the_end()
    assert letters(stage) == []
    assert rows(url, "SELECT count(*) FROM shop.orders JOIN shop.customers USING (id)") == [(300,)]
    assert worker.metric("binlane_handler_failures_total") > 0
    assert worker.sigterm() == 0
