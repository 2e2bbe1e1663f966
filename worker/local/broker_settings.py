"""Settings of the local broker, and prepared files that halve its start.

The node runs on this machine, starts quickly, and keeps its data. The files are Kafka's classes, read and
checked once per machine, and the first records of a formatted folder. They are beside Spark's archive in the
cache (see `handlers.spark.runtime.class_archive`). tools/broker_classes.py creates them."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from handlers.spark.runtime.class_archive import QUIET, is_ours, kept, place_of

HOST = "127.0.0.1"
NODE = 1
# A start takes 4.5 CPU seconds, nearly all for the JVM. With the JVM's defaults it takes 7.
JVM_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE),
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "data",  # relative, because a comma in a longer path would end the name
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # Change records have the times of their source, so retention by time would delete old ones at once.
    "log.retention.ms": "-1",
    # After a kill, the controller accepts the same node only when its earlier session has expired.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "1000",
    # Otherwise an empty record is written twice a second for other controllers: 40 % of idle CPU.
    "metadata.max.idle.interval.ms": "0",
    # One node, and few partitions of the internal topics, which each start loads.
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
BOOTSTRAP = "bootstrap.checkpoint"
"""The first records of a formatted folder: which features are on."""
_OF_FORMAT = (
    "controller.quorum.",
    "initial.",
    "log.dir",
    "metadata.log.dir",
    "node.id",
    "process.",
    "unstable.",
)
"""Prefixes of the settings that the formatting tool reads."""


def write_settings(directory: Path, port: int, overrides: Mapping[str, str]) -> Path:
    """Write `server.properties` and the broker's log settings into `directory`. Return the latter's path."""
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
    """Whether a server could listen on `port` of this machine's loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like Kafka's own sockets
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
    """Return a free port outside the kernel's range for outgoing connections.

    In that range, another program's connection could take the port while the broker restarts. Even a client's
    own reconnect could, and would then be connected to itself."""
    low, high = (int(part) for part in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [port for port in range(10_000, 65_536) if not low <= port <= high] or range(10_000, 65_536)
    while True:
        port = secrets.choice(ports)
        if is_free(port):
            return port


def place(jars: Sequence[Path]) -> Path:
    """Return the path for this Java and this Kafka, without suffix. Raises JavaError, OSError."""
    return place_of("kafka", jars)


def java_options(jars: Sequence[Path]) -> list[str]:
    with suppress(OSError):
        found = kept(place(jars))
        if found is not None:
            return [f"-XX:SharedArchiveFile={found}", "-XX:+VerifySharedSpaces", QUIET]
    return []


def bootstrap_of(jars: Sequence[Path], overrides: Mapping[str, str]) -> bytes | None:
    """Return the contents of `BOOTSTRAP` for a folder with these settings; None: not known."""
    if any(name.startswith(_OF_FORMAT) for name in overrides):
        return None
    with suppress(OSError):
        known = place(jars).with_suffix(".checkpoint")
        if is_ours(known.parent) and not known.is_symlink():
            return known.read_bytes() or None
    return None
