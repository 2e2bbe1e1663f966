"""The jars of Kafka Connect and of Debezium's connector, fetched and checked like those of Kafka."""

from __future__ import annotations

from pathlib import Path

from handlers.spark.runtime import jars

__all__ = ["CONNECT", "DEBEZIUM", "DEBEZIUM_VERSION", "SHARED", "connect_jars", "debezium_plugin"]

DEBEZIUM_VERSION = "3.5.0.Final"
CONNECT = (
    *jars.KAFKA_COORDINATES,
    f"org.apache.kafka:connect-runtime:{jars.KAFKA_VERSION}",
    f"org.apache.kafka:connect-json:{jars.KAFKA_VERSION}",
)
DEBEZIUM = (f"io.debezium:debezium-connector-mariadb:{DEBEZIUM_VERSION}",)
# Connect provides the plugin's Kafka and logging libraries.
SHARED = ("jakarta.ws.rs-api", "kafka-clients", "lz4-java", "slf4j-api", "snappy-java", "zstd-jni")


def connect_jars() -> list[Path]:
    """Return Kafka Connect and its dependencies. Raises JarsError, JavaError."""
    return jars.resolve(CONNECT, kind="connect", digests=jars.known_digests())


def debezium_plugin() -> Path:
    """Return the folder of the connector. Raises JarsError, JavaError."""
    found = jars.resolve(DEBEZIUM, kind="debezium", without=SHARED, digests=jars.known_digests())
    return found[0].parent
