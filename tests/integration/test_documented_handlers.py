"""The configurations of docs/handlers work when pasted: only addresses are replaced here."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import redis
from confluent_kafka import Consumer, TopicPartition
from forked_commands import forked_binlane
from integration.process import eventually
from integration.source import Source
from servers.clickhouse_server import ClickHouseServer
from servers.hook_server import HookServer
from servers.redis_node import RedisNode
from servers.search_node import SearchNode

from worker.local.broker import Broker

PAGES = Path(__file__).parents[2] / "docs/handlers"
ROWS = 20


def pasted(page: str, broker: Broker, number: int = 0) -> str:
    """The configuration of a page, for this broker."""
    blocks = re.findall(r"```yaml\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    topic = f"cdc.shop.{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic)
    text: str = blocks[number].replace("localhost:9092", broker.bootstrap_servers)
    # Every configuration serves its status at the same port otherwise.
    return text.replace("[cdc.shop]", f"[{topic}]") + "http: null\n"


def run_until(
    text: str, broker: Broker, folder: Path, arrived: Callable[[], bool], **environment: str
) -> str:
    """`binlane check --connect`, then `binlane run` until the rows have arrived; what the run logged."""
    (folder / "shop.yaml").write_text(text)
    check = forked_binlane(["check", "--connect", "shop.yaml"], folder, environment)
    assert check.returncode == 0, check.stderr
    source = Source(broker.bootstrap_servers, re.findall(r"topics: \[(.*)\]", text)[0])
    source.insert("orders", ROWS)
    source.flush()
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "binlane", "run", "shop.yaml"],
            stderr=log,
            cwd=folder,
            env=os.environ | environment,
        )
    try:
        eventually(arrived, what=f"{ROWS} rows have arrived")
        worker.terminate()
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()
        print((folder / "log").read_text())


def test_the_page_of_redis(broker: Broker, redis_server: RedisNode, tmp_path: Path) -> None:
    url = redis_server.new_database("documented")
    with redis.Redis.from_url(url) as client:
        run_until(
            pasted("redis.md", broker), broker, tmp_path, lambda: client.dbsize() == ROWS, REDIS_URL=url
        )
        assert client.hgetall("shop:orders:7") == {b"id": b"7", b"seq": b"7", b"name": b"row 7 of orders"}


def test_the_page_of_elasticsearch(broker: Broker, search_node: SearchNode, tmp_path: Path) -> None:
    search_node.remove("shop.*")

    def there() -> bool:
        try:
            return len(search_node.documents("shop.orders")) == ROWS
        except AssertionError:  # no index yet
            return False

    run_until(pasted("elasticsearch.md", broker), broker, tmp_path, there, SEARCH_URL=search_node.url)
    assert search_node.documents("shop.orders")["7"] == {"id": 7, "seq": 7, "name": "row 7 of orders"}


def test_the_page_of_clickhouse(
    broker: Broker, own_clickhouse: Callable[[], ClickHouseServer], tmp_path: Path
) -> None:
    server = own_clickhouse()

    def there() -> bool:
        try:
            return len(server.rows("shop.orders")) == ROWS
        except AssertionError:  # no table yet
            return False

    run_until(pasted("clickhouse.md", broker), broker, tmp_path, there, CLICKHOUSE_URL=server.url)
    assert server.rows("shop.orders")[7] == {"id": 7, "seq": 7, "name": "row 7 of orders"}


def test_the_page_of_kafka(broker: Broker, tmp_path: Path) -> None:
    prefix = f"replica.{uuid.uuid4().hex[:8]}"
    topic = broker.create_topic(f"{prefix}.shop.orders")
    text = pasted("kafka.md", broker).replace("topic: replica.", f"topic: {prefix}.")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"})
    try:
        place = TopicPartition(topic, 0)
        run_until(
            text, broker, tmp_path, lambda: consumer.get_watermark_offsets(place, timeout=10)[1] == ROWS
        )
    finally:
        consumer.close()


def test_the_page_of_the_webhook(tmp_path: Path, broker: Broker) -> None:
    with HookServer() as hook:

        def rows() -> int:
            return sum(len(each.ids) for each in hook.received if each.method == "POST")

        text = pasted("webhook.md", broker).replace("http://localhost:8000", hook.url)
        run_until(text, broker, tmp_path, lambda: rows() == ROWS)
        assert hook.received[-1].path == "/changes/orders"


def test_the_page_of_files(tmp_path: Path, broker: Broker) -> None:
    def lines() -> int:
        return sum(
            len(path.read_text().splitlines()) for path in tmp_path.glob("lake/shop/orders/.*.jsonl.part")
        )

    run_until(pasted("files-and-log.md", broker), broker, tmp_path, lambda: lines() == ROWS)
    (finished,) = tmp_path.glob("lake/shop/orders/*.jsonl")
    assert len(finished.read_text().splitlines()) == ROWS


def test_the_page_of_parquet(tmp_path: Path, broker: Broker) -> None:
    def rows() -> int:
        files = tmp_path.glob("raw/shop/orders/source=*/hour=2026-11-20-23/*.parquet")
        return sum(pq.read_metadata(file).num_rows for file in files)

    run_until(pasted("parquet.md", broker), broker, tmp_path, lambda: rows() == ROWS)


def test_the_page_of_log(tmp_path: Path, broker: Broker) -> None:
    def told() -> int:
        return (tmp_path / "log").read_text().count('"event": "change"') if (tmp_path / "log").exists() else 0

    run_until(pasted("files-and-log.md", broker, 1), broker, tmp_path, lambda: told() == ROWS)


def test_the_page_of_sql(tmp_path: Path, broker: Broker) -> None:
    def rows() -> int:
        try:
            with closing(sqlite3.connect(f"file:{tmp_path}/replica.db?mode=ro", uri=True)) as replica:
                return int(replica.execute('SELECT count(*) FROM "shop.orders"').fetchone()[0])
        except sqlite3.OperationalError:  # the file or the table is not there yet
            return 0

    run_until(pasted("sql.md", broker), broker, tmp_path, lambda: rows() == ROWS)
