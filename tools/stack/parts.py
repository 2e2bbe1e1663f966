"""The servers of the stack: the source, Kafka Connect, Prometheus, and the traffic that changes rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pymysql
import yaml
from servers.mariadb_server import MariaDBServer
from servers.prometheus_server import PrometheusNode
from servers.server_process import HOST, PASSWORD, USER, ServerProcess

from handlers.spark.runtime.versions import find_java
from stack.jars import connect_jars, debezium_plugin
from worker.local.broker_settings import free_port, is_free

__all__ = ["ROOT", "Connect", "Source", "Traffic", "near", "prometheus"]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def near(port: int) -> int:
    """Return this port, where users look first, or any free port if it is in use."""
    return port if is_free(port) else free_port()


class Source(MariaDBServer):
    """A MariaDB whose binlog Debezium reads, with the database of deploy/source/shop.sql."""

    settings: ClassVar[dict[str, str]] = {
        **MariaDBServer.settings,
        "server-id": "1",
        "log-bin": "binlog",
        "binlog-format": "ROW",
        "binlog-row-image": "FULL",
    }

    def start(self) -> None:
        """Start, and return when its tables exist. Raises ServerError, ProgramMissing."""
        super().start()
        statements = "".join(
            line
            for line in (DEPLOY / "source" / "shop.sql").read_text().splitlines(keepends=True)
            if not line.startswith("--")
        )
        connection = pymysql.connect(
            host=HOST, port=self.port, user=USER, password=PASSWORD, charset="utf8mb4", autocommit=True
        )
        with connection, connection.cursor() as cursor:
            for statement in statements.split(";\n"):
                if statement.strip():
                    cursor.execute(statement)

    @property
    def shop_url(self) -> str:
        """The URL of the shop's own user."""
        return f"mysql://shop:shop@{HOST}:{self.port}/shop"

    @property
    def prompt(self) -> str:
        """The command that opens an SQL prompt."""
        return f"mariadb --host={HOST} --port={self.port} --user=shop --password=shop shop"


class Connect(ServerProcess):
    """Kafka Connect in one process, with the connector of deploy/connect/shop.json."""

    package: ClassVar[str] = "kafka-connect"
    unprivileged: ClassVar[bool] = False
    start_seconds: ClassVar[float] = 120

    def __init__(self, port: int, bootstrap_servers: str, source_port: int) -> None:
        super().__init__(port)
        self._bootstrap_servers = bootstrap_servers
        self._source_port = source_port

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the variables that the files of deploy/connect need."""
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self._bootstrap_servers,
            "CONNECT_LISTENER": self.url,
            "CONNECT_DATA": str(self.directory),
            "SOURCE_HOST": HOST,
            "SOURCE_PORT": str(self._source_port),
        }

    def prepare(self) -> None:
        plugins = self.directory / "connect"
        plugins.mkdir()
        (plugins / "debezium").symlink_to(debezium_plugin())

    def command(self) -> list[str]:
        return [
            *(str(find_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            f"-Dlog4j2.configurationFile={DEPLOY / 'connect' / 'log4j2.properties'}",
            *("-cp", os.pathsep.join(map(str, connect_jars()))),
            "org.apache.kafka.connect.cli.ConnectStandalone",
            *(str(DEPLOY / "connect" / name) for name in ("connect.properties", "shop.json")),
        ]

    def ping(self) -> bool:
        """Return whether the connector and its task run. Raises RuntimeError if one has failed."""
        answer = httpx.get(f"{self.url}/connectors/shop/status", timeout=2, trust_env=False)
        if answer.status_code != 200:
            return False
        told = answer.json()
        each = [told["connector"], *told["tasks"]]
        for one in each:
            if one["state"] == "FAILED":
                raise RuntimeError(one.get("trace", "failed").splitlines()[0])
        return len(each) == 2 and all(one["state"] == "RUNNING" for one in each)


class Traffic(ServerProcess):
    """deploy/source/traffic.py, which changes a few rows per second."""

    package: ClassVar[str] = "traffic"
    unprivileged: ClassVar[bool] = False

    def __init__(self, source_url: str) -> None:
        super().__init__()
        self._source_url = source_url

    @property
    def url(self) -> str:
        return self._source_url

    def environment(self) -> dict[str, str]:
        return {"SOURCE_URL": self._source_url}

    def command(self) -> list[str]:
        return [sys.executable, str(DEPLOY / "source" / "traffic.py")]

    def ping(self) -> bool:
        return True


def prometheus(port: int) -> PrometheusNode:
    """Create a Prometheus with the rules of deploy/alerts.yml. `scrape` sets its targets."""
    rules: dict[str, Any] = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    return PrometheusNode(rules, port)
