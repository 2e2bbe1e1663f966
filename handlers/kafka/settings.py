"""The producer's properties of a `kafka` handler. Names and meanings: librdkafka's CONFIGURATION.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from handlers.kafka.librdkafka import SILENT, SettingsError, explain, refuse_units

_OWNED = {
    "bootstrap.servers": "set bootstrap_servers instead",
    "metadata.broker.list": "set bootstrap_servers instead",
    "enable.idempotence": "the handler needs it to keep the order",
    "acks": "the handler waits for all replicas",
    "request.required.acks": "the handler waits for all replicas",
    "message.timeout.ms": "set timeout instead",
    "delivery.timeout.ms": "set timeout instead",
    "transactional.id": "the handler has no transactions",
    "delivery.report.only.error": "the handler counts what was delivered",
}
_DEFAULTS = {
    "client.id": "binlane",
    # Java's producers choose partitions this way, so topics with equal keys can be joined.
    "partitioner": "murmur2_random",
    # Messages in this queue use memory in addition to `lanes.max_bytes`.
    "queue.buffering.max.kbytes": "65536",
}


class PropertyFault(ValueError):
    """A property that cannot be used. `problem` is a sentence without the property's value."""

    def __init__(self, name: str | None, problem: str) -> None:
        super().__init__(f"{name}: {problem}" if name else problem)
        self.name = name
        self.problem = problem


def client_settings(servers: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of every client of the target, all as text. Raises PropertyFault."""
    texts: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _OWNED:
            raise PropertyFault(name, f"the handler sets it itself ({_OWNED[name]}): remove it")
        if name.endswith("_cb") or name in {"logger", "default.topic.config"}:
            raise PropertyFault(name, "needs a Python object, which a configuration cannot have: remove it")
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return {**_DEFAULTS, **texts, "bootstrap.servers": servers}


def producer_settings(servers: str, properties: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Return the producer's properties. `timeout`: seconds for a message. Raises PropertyFault."""
    return {
        # Shorter than the timeout, so a missing topic is reported as such and not as a timeout.
        "topic.metadata.propagation.max.ms": str(max(1, round(timeout * 500))),
        **client_settings(servers, properties),
        "enable.idempotence": "true",
        "acks": "all",
        "message.timeout.ms": str(max(1, round(timeout * 1000))),
    }


def check_properties(properties: Mapping[str, Any], timeout: float) -> None:
    """Let librdkafka check the properties, without a broker. Raises PropertyFault."""
    settings = producer_settings("", properties, timeout)
    del settings["bootstrap.servers"]
    try:
        refuse_units(settings)
        Producer(settings, logger=SILENT)
    except (KafkaException, TypeError, ValueError) as error:
        told = error if isinstance(error, SettingsError) else explain(error)
        _, _, name = told.key.partition("properties.")
        raise PropertyFault(name or None, told.problem) from None
