"""How the local broker is set up: one node on this machine alone, quick to start, keeping its data."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
NODE = 1
# A start, nearly all of it the JVM's own work, takes 4.5 CPU seconds; with the JVM's defaults 7.
JVM_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE),
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "data",  # below the working folder: a comma in its path would end a folder's name here
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # Change records carry the times of their source: a retention by time would delete old ones at once.
    "log.retention.ms": "-1",
    # After a kill the controller takes the same node back only when its earlier session has run out.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "1000",
    # Twice a second a record of nothing, by which other controllers are seen to follow: 40 % of idle CPU.
    "metadata.max.idle.interval.ms": "0",
    # One node, and few partitions of the internal topics, which a start has to load.
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

_LOG_SETTINGS = """\
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %-5p %c{1}: %m%n
"""


def write_settings(directory: Path, port: int, overrides: Mapping[str, str]) -> Path:
    """Writes `server.properties` and, returned, the settings of the broker's log into `directory`."""
    controller = f"{HOST}:{free_port()}"
    own = {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"{NODE}@{controller}",
    }
    lines = [f"{key}={value}\n" for key, value in {**_SETTINGS, **own, **overrides}.items()]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "server.properties").write_text("".join(lines), encoding="utf-8")
    log_settings = directory / "log4j2.properties"
    log_settings.write_text(_LOG_SETTINGS, encoding="utf-8")
    return log_settings


def is_free(port: int) -> bool:
    """Whether a server could listen at `port` of this machine's loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka's own sockets
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A free port outside the range that the kernel takes for outgoing connections.

    From inside that range another program's connection could take it while the broker restarts; even a
    client's own attempt to reconnect, which would then be connected to itself.
    """
    low, high = (int(part) for part in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [port for port in range(10_000, 65_536) if not low <= port <= high] or range(10_000, 65_536)
    while True:
        port = secrets.choice(ports)
        if is_free(port):
            return port
