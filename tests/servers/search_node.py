"""OpenSearch for tests: its own server, of the jars that the project publishes.

`python tests/servers/search_node.py` fetches them (43 MB, once).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import plain_http
from servers.server_process import HOST, ServerProcess

from handlers.spark.runtime import jars
from handlers.spark.runtime.versions import JavaError, find_java
from worker.local.broker_settings import free_port

__all__ = ["OPENSEARCH", "SearchNode", "opensearch_jars"]

_VERSION = "2.19.6"
OPENSEARCH = (
    f"org.opensearch:opensearch:{_VERSION}",
    f"org.opensearch.plugin:transport-netty4-client:{_VERSION}",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)
_SOURCE = Path(__file__).with_name("SearchNode.java")


def opensearch_jars() -> list[Path]:
    """Raises JarsError, JavaError."""
    lines = Path(__file__).with_name("opensearch.sha256").read_text("utf-8").splitlines()
    digests = {name: digest for digest, name in (line.split() for line in lines)}
    return jars.resolve(OPENSEARCH, kind="opensearch", digests=digests)


class SearchNode(ServerProcess):
    """A single node without security. What was written stays over restarts and kills."""

    package: ClassVar[str] = "opensearch"
    unprivileged: ClassVar[bool] = False  # another account need not be able to read the jars
    start_seconds: ClassVar[float] = 120

    def __init__(self) -> None:
        super().__init__()
        self._transport_port = free_port()
        self._names = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def new_name(self) -> str:
        """For a database or an index that no other test has."""
        self._names += 1
        return f"db{self._names}"

    def call(self, method: str, path: str, body: Any = None, number: Callable[[str], Any] = float) -> Any:
        """What it answers to a request, which has to be 2xx. `number`: of the digits of one with a point."""
        answer = plain_http.request(method, self.url + path, json=body, timeout=30)
        assert answer.is_success, answer.text
        return json.loads(answer.content, parse_float=number)

    def remove(self, *indexes: str) -> None:
        """Indexes, also by patterns, that are there or not."""
        self.call("DELETE", f"/{','.join(indexes)}?ignore_unavailable=true")

    def documents(self, index: str, number: Callable[[str], Any] = float) -> dict[str, dict[str, Any]]:
        """Id -> document, without what it tells of its origin."""
        self.call("POST", f"/{index}/_refresh")
        hits = self.call("POST", f"/{index}/_search", {"size": 10_000}, number)["hits"]["hits"]
        return {
            hit["_id"]: {name: value for name, value in hit["_source"].items() if name != "_binlane"}
            for hit in hits
        }

    def command(self) -> list[str]:
        for folder in ("config", "modules", "plugins", "lib"):
            (self.directory / folder).mkdir(exist_ok=True)
        settings = {
            "path.home": str(self.directory),
            "network.host": HOST,
            "http.port": str(self.port),
            "transport.port": str(self._transport_port),
            "discovery.type": "single-node",
            "cluster.name": "binlane",
            "node.name": "binlane",
            "http.type": "netty4",
            "transport.type": "netty4",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        # Spark's jars have a compiler: a Java without one would not take the source.
        spark = jars.spark_jars_folder()
        compiler = [next(spark.glob(f"{name}-*.jar")) for name in ("janino", "commons-compiler")]
        return [
            str(find_java().executable),
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *("-cp", ":".join(map(str, [*opensearch_jars(), *compiler]))),
            "org.codehaus.janino.SimpleCompiler",
            *(str(_SOURCE), "SearchNode"),
            *(word for setting in settings.items() for word in setting),
        ]

    def ping(self) -> bool:
        answer = plain_http.get(f"{self.url}/_cluster/health", timeout=2)
        return answer.is_success and answer.json()["status"] in ("green", "yellow")


if __name__ == "__main__":
    try:
        opensearch_jars()
    except (jars.JarsError, JavaError) as fault:
        sys.exit(f"setup: {fault}")
