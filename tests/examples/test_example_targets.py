"""Each target's example runs as it is, and the target then holds the sample's rows."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import plain_http
import pyarrow.parquet as pq
import pytest
import redis
import sqlalchemy as sa
from delta_reading import read_delta
from examples.example_runs import EXAMPLES, RunExample, changes_of
from pyiceberg.catalog import load_catalog
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from servers.redis_node import RedisNode
from servers.search_node import SearchNode
from spark_sessions import LIGHT_JAVA
from topic_messages import messages

from handlers.sql.target.engine import check_url
from worker.local.broker import Broker
from worker.local.broker_settings import free_port

CHANGES = changes_of("formats/canal")
ROWS = {"shop.customers": 3, "shop.orders": 4, "crm.tags": 5, "crm.contacts": 2, "crm.audit": 1}
"""Of each table, after the whole sample."""
LARGE_ORDERS = ["5868.37", "2773.30", "7169.96", "3423.96"]


def counted(database: str = "") -> Counter[str]:
    """{table: its changes}"""
    return Counter(table for table, _ in CHANGES if table.startswith(database))


# ---- databases


def look(url: str, tables: dict[str, str], orders: str, contacts: str) -> tuple[dict[str, int], Any, Any]:
    """({table: rows}, total of order 5004, age of contact 21); `tables`: source's name to the target's."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        counts = {
            table: connection.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one()
            for table, name in tables.items()
        }
        total = connection.execute(sa.text(f"SELECT total FROM {orders} WHERE id = 5004")).scalar_one()
        age = connection.execute(sa.text(f"SELECT age FROM {contacts} WHERE id = 21")).scalar_one()
    engine.dispose()
    return counts, total, age


def test_sql_postgresql(run_example: RunExample, postgres: PostgresServer) -> None:
    url = postgres.new_database("example")
    run_example("targets/sql-postgresql", POSTGRES_URL=url)

    found = look(url, {table: table for table in ROWS}, "shop.orders", "crm.contacts")

    assert found == (ROWS, Decimal("1900.40"), 18), "contact 21 is older than the column age DEFAULT 18"


def test_sql_mariadb(run_example: RunExample, mariadb: MariaDBServer) -> None:
    url = mariadb.new_database("replica")
    run_example("targets/sql-mariadb", MARIADB_URL=url)

    names = {table: table.replace(".", "_") for table in ROWS}

    assert look(url, names, "shop_orders", "crm_contacts") == (ROWS, Decimal("1900.40"), 18)


def test_sql_sqlite(run_example: RunExample) -> None:
    run = run_example("targets/sql-sqlite")

    names = {table: f'"{table}"' for table in ROWS}
    counts, total, age = look(f"sqlite:///{run.folder}/replica.db", names, '"shop.orders"', '"crm.contacts"')

    assert (counts, Decimal(str(total)), age) == (ROWS, Decimal("1900.40"), 18)


def test_sql_history(run_example: RunExample) -> None:
    run = run_example("targets/sql-history")

    with sa.create_engine(f"sqlite:///{run.folder}/history.db").connect() as connection:
        counts = {
            table: connection.exec_driver_sql(
                f'SELECT count(*) - count(__END_AT), count(__END_AT) FROM "{table}"'
            ).one()
            for table in ROWS
        }
    assert {table: current for table, (current, _) in counts.items()} == ROWS
    assert counts["shop.orders"][1] > 0


def test_sql_duckdb(run_example: RunExample) -> None:
    run = run_example("targets/sql-duckdb")
    run.stop()

    tables = {table: f"replica.{table}" for table in ROWS}
    url = check_url(f"duckdb:///{run.folder}/replica.duckdb").render_as_string()

    assert look(url, tables, "replica.shop.orders", "replica.crm.contacts") == (ROWS, Decimal("1900.40"), 18)


# ---- the others


def test_redis(run_example: RunExample, redis_server: RedisNode) -> None:
    url = redis_server.new_database("example")
    run_example("targets/redis", REDIS_URL=url)

    with redis.Redis.from_url(url, decode_responses=True) as client:
        kept = Counter(key.rpartition(":")[0] for key in client.scan_iter())
        assert kept == {"customer": 3, "shop:orders": 4, "crm:tags": 5, "crm:contacts": 2, "crm:audit": 1}
        assert client.hgetall("shop:orders:5004")["total"] == "1900.40"
        customer = json.loads(client.get("customer:u1@example.com"))
        assert (customer["id"], "balance" in customer) == (1001, False)
        assert 0 < client.ttl("customer:u1@example.com") <= 168 * 3600


def test_clickhouse(run_example: RunExample, own_clickhouse: Any) -> None:
    server = own_clickhouse()
    run_example("targets/clickhouse", CLICKHOUSE_URL=server.url)

    assert {table: len(server.rows(table)) for table in ROWS} == ROWS
    assert [row["total"] for row in server.rows("shop.orders") if row["id"] == 5004] == ["1900.40"]


def test_elasticsearch(run_example: RunExample, search_node: SearchNode) -> None:
    search_node.remove("shop.*", "crm.*")
    run_example("targets/elasticsearch", SEARCH_URL=search_node.url)

    assert {table: len(search_node.documents(table)) for table in ROWS} == ROWS
    assert search_node.documents("shop.orders")["5004"]["total"] == 1900.4


def test_kafka(run_example: RunExample, played: Broker) -> None:
    run_example("targets/kafka")

    for database in ("shop", "crm"):
        found = messages(played.bootstrap_servers, f"example.replica.{database}")
        tables = Counter(f"{database}.{json.loads(message.value() or b'')['table']}" for message in found)
        assert tables == counted(database)
    [tag] = [json.loads(each.value() or b"") for each in found if each.key() == b'{"tag":"other"}']
    assert (tag["op"], tag["after"]) == ("insert", {"tag": "other", "n": 9})


def test_webhook(run_example: RunExample) -> None:
    with receiver() as (url, lines):
        run_example("targets/webhook", WEBHOOK_URL=url)

    assert Counter(line.split()[0] for line in lines()) == counted()
    assert 'shop.orders delete {"id": 5004}' in lines()


def test_the_receiver_refuses_what_is_not_signed() -> None:
    with receiver() as (url, lines):
        assert plain_http.post(url, content=b"{}").status_code == 401
        late = {"X-Binlane-Timestamp": "1", "X-Binlane-Signature": "sha256=" + signature(b"1.{}")}
        assert plain_http.post(url, content=b"{}", headers=late).status_code == 401, (
            "an old request, sent again"
        )
    assert lines() == []


def signature(signed: bytes) -> str:
    return hmac.new(b"only for trying it", signed, hashlib.sha256).hexdigest()


def test_files(run_example: RunExample) -> None:
    run = run_example("targets/files")
    run.stop()

    lines = [
        json.loads(line)
        for file in sorted(run.folder.glob("output/*/*/*.jsonl.gz"))
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]
    assert Counter(f"{line['database']}.{line['table']}" for line in lines) == counted()
    last = [line for line in lines if line["table"] == "orders"][-1]
    assert (last["op"], last["after"]["total"]) == ("insert", "1900.40")


def test_files_parquet(run_example: RunExample) -> None:
    run = run_example("targets/files-parquet")
    run.stop()

    rows: dict[str, list[Any]] = {}
    for file in run.folder.glob("raw/*/*/*/*/*.parquet"):
        database, table = file.parts[-5:-3]
        rows.setdefault(f"{database}.{table}", []).extend(pq.ParquetFile(file).read().to_pylist())
    assert {table: len(found) for table, found in rows.items()} == counted()
    last = max(rows["shop.orders"], key=lambda row: (row["_offset"], row["_index"]))
    assert (last["_op"], last["id"], last["total"]) == ("insert", 5004, Decimal("1900.40"))


def test_log(run_example: RunExample) -> None:
    run = run_example("targets/log")

    assert Counter(line["table"] for line in run.worker.logged("change")) == counted("shop")
    batches: Counter[str] = Counter()
    for line in run.worker.logged("batch"):
        batches[line["table"]] += line["changes"]
    assert batches == counted("crm")


@pytest.mark.soak
def test_spark(run_example: RunExample) -> None:
    run = run_example("targets/spark", JAVA_TOOL_OPTIONS=LIGHT_JAVA)
    run.stop()

    rows = read_delta(run.folder / "lake" / "shop" / "orders")
    assert len(rows) == counted()["shop.orders"]
    [last] = [row for row in rows if row["_offset"] == max(row["_offset"] for row in rows)]
    assert (last["_op"], last["id"], last["total"]) == ("insert", 5004, Decimal("1900.40"))


def test_iceberg(run_example: RunExample) -> None:
    run = run_example("targets/iceberg")
    run.stop()

    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{run.folder}/lake/catalog.db")
    rows = {table: catalog.load_table(table).scan().to_arrow().to_pylist() for table in ROWS}
    assert {table: len(found) for table, found in rows.items()} == ROWS
    [order] = [row for row in rows["shop.orders"] if row["id"] == 5004]
    assert order["total"] == Decimal("1900.40")


def test_own_handler(run_example: RunExample) -> None:
    run = run_example("targets/own-handler")

    assert totals(run.folder / "large-orders.txt") == LARGE_ORDERS


def test_async_handler(run_example: RunExample, tmp_path: Path) -> None:
    port, printed = free_port(), tmp_path / "printed"
    with printed.open("wb") as file:
        service = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "targets" / "async_handler.py"), str(port)], stdout=file
        )
    try:
        run_example("targets/async-handler", SERVICE_URL=f"http://127.0.0.1:{port}/changes")
    finally:
        service.terminate()
        service.wait(20)

    sent = [json.loads(line) for line in printed.read_text().splitlines()]
    assert Counter(each["table"] for each in sent) == counted()
    of_row = [each["op"] for each in sent if each["table"] == "shop.orders" and each["key"] == {"id": 5004}]
    order = [
        change.op
        for table, change in CHANGES
        if table == "shop.orders" and change.key is not None and change.key["id"] == 5004
    ]
    assert of_row == order


def test_transform(run_example: RunExample) -> None:
    run = run_example("targets/transform")
    run.stop()

    with closing(sqlite3.connect(run.folder / "cleaned.db")) as connection:
        rows = connection.execute('SELECT id, channel, customer_id FROM "shop.orders"').fetchall()
    key = b"only for trying it"
    assert sorted(rows) == [
        (number, channel, hmac.new(key, customer, hashlib.sha256).hexdigest())
        for number, channel, customer in (
            (1000, "web", b"3"),
            (5001, "app", b"1"),
            (5003, "app", b"39"),
            (5004, "web", b"7"),
        )
    ]


def test_everything(
    run_example: RunExample, played: Broker, postgres: PostgresServer, redis_server: RedisNode
) -> None:
    urls = {
        "POSTGRES_URL": postgres.new_database("everything"),
        "REDIS_URL": redis_server.new_database("all"),
    }
    with receiver() as (url, lines):
        run = run_example("targets/everything", WEBHOOK_URL=url, **urls)
        run.stop()

    [letter] = messages(played.bootstrap_servers, "example.dead")
    headers = dict(letter.headers() or [])
    assert headers["binlane.table"] == b"shop.orders"
    assert headers["binlane.handler"] == b"own_handler:LargeOrders"
    assert b"a total of 7169.96 is above 7000" in (headers["binlane.error"] or b"")
    written = totals(run.folder / "everything-large-orders.txt")
    assert sorted(written) == sorted(total for total in LARGE_ORDERS if total != "7169.96")

    replicated = [table for table in ROWS if table != "crm.audit"]
    found = look(urls["POSTGRES_URL"], {table: table for table in replicated}, "shop.orders", "crm.contacts")
    assert found == ({table: ROWS[table] for table in replicated}, Decimal("1900.40"), 18)
    with redis.Redis.from_url(urls["REDIS_URL"], decode_responses=True) as client:
        assert sorted(client.keys()) == [f"cache:shop:customers:{id_}" for id_ in (1001, 2002, 2003)]
    orders = [message.value() for message in messages(played.bootstrap_servers, "example.orders")]
    assert (len(orders), orders.count(None)) == (8, 1), "the delete is a tombstone"
    assert Counter(line.split()[0] for line in lines()) == {
        table: count for table, count in counted("crm").items() if table != "crm.audit"
    }
    [archive] = run.folder.glob("everything-archive/crm/audit/*.jsonl")
    assert len(archive.read_text().splitlines()) == counted()["crm.audit"]


# ---- what targets hold


@contextmanager
def receiver() -> Iterator[tuple[str, Any]]:
    """webhook_receiver.py, running: its URL, and what gives the lines it has printed."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "targets" / "webhook_receiver.py"), str(free_port())],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    printed: list[str] = []
    try:
        found = re.search(r"http://\S+changes", process.stdout.readline())
        assert found is not None
        yield found[0].rstrip(";"), lambda: printed
    finally:
        process.terminate()
        printed += process.communicate(timeout=20)[0].splitlines()


def totals(file: Path) -> list[str]:
    return [line.split()[-2] for line in file.read_text().splitlines()]
