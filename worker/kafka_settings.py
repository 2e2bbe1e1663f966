"""From the `kafka:` section to librdkafka's properties.

Property names and meanings: librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException

__all__ = [
    "KafkaSection",
    "SettingsError",
    "admin_settings",
    "check_settings",
    "consumer_settings",
    "explain",
    "producer_settings",
    "settings_faults",
]

_KEY = "kafka.properties"

# What binlane's promises rest on, and where the user says the same thing.
_OWNED = {
    "bootstrap.servers": "set kafka.bootstrap_servers instead",
    "metadata.broker.list": "set kafka.bootstrap_servers instead",
    "group.id": "set kafka.group_id instead",
    "enable.auto.commit": "an offset is committed only when its record is finished; see checkpoint.interval",
    "auto.commit.enable": "an offset is committed only when its record is finished; see checkpoint.interval",
    "enable.auto.offset.store": "an offset is committed only when its record is finished",
    "auto.offset.reset": "where a start begins is said by checkpoint.initial",
    "enable.partition.eof": "binlane needs it to know when a partition has been read to its end",
}

_DEFAULTS = {
    "client.id": "binlane",
    # librdkafka's 1,000 ms leaves the queue dry between fetches: 5 ms triples the throughput.
    "fetch.queue.backoff.ms": "5",
    # The fetch queue is memory beside `lanes.max_bytes`; 64 MiB is librdkafka's own default.
    "queued.max.messages.kbytes": "32768",
    "isolation.level": "read_committed",
}

# With the new protocol these are the broker's to say, and librdkafka refuses them.
_CLASSIC_ONLY = {
    "partition.assignment.strategy": "the broker assigns; group.remote.assignor chooses how",
    "session.timeout.ms": "the broker's group.consumer.session.timeout.ms says it",
    "heartbeat.interval.ms": "the broker's group.consumer.heartbeat.interval.ms says it",
}

_CONSUMER_ONLY_TEXT = """
auto.commit.interval.ms check.crcs consume.callback.max.messages coordinator.query.interval.ms
fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
fetch.wait.max.ms group.instance.id group.protocol group.protocol.type group.remote.assignor
heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms offset.store.method
partition.assignment.strategy queued.max.messages.kbytes queued.min.messages session.timeout.ms
"""
_CONSUMER_ONLY = frozenset(_CONSUMER_ONLY_TEXT.split())

# For the nearest spelling only: librdkafka decides what exists.
_COMMON_TEXT = """
allow.auto.create.topics api.version.request broker.address.family client.dns.lookup client.id
client.rack connections.max.idle.ms debug enable.metrics.push enable.ssl.certificate.verification
log.connection.close log_level max.in.flight message.max.bytes metadata.max.age.ms
metadata.recovery.strategy receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms
retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.principal
sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url sasl.password
sasl.username security.protocol socket.connection.setup.timeout.ms socket.keepalive.enable
socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
ssl.crl.location ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem
ssl.keystore.location ssl.keystore.password statistics.interval.ms topic.metadata.refresh.interval.ms
"""
_COMMON = frozenset(_COMMON_TEXT.split())

_NAMED = re.compile(r'configuration property:? "([^"]+)"|`([a-z][a-z.]+\.[a-z.]+)`', re.IGNORECASE)


class KafkaSection(Protocol):
    """The part of the configuration that is read here (`Configuration.kafka`)."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def group_id(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, Any]: ...


class _Configuration(Protocol):
    @property
    def kafka(self) -> KafkaSection: ...


class SettingsError(ValueError):
    """A Kafka property that cannot be used: `key` is its path in the configuration, `problem` a sentence.

    Its text is `key: problem`, and never holds the property's value.
    """

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


def consumer_settings(configuration: _Configuration) -> dict[str, Any]:
    """The properties of the worker's consumer, all values text.

    The user's properties come before binlane's defaults; those that binlane's promises rest on cannot be set.

    Raises:
        SettingsError: a property that binlane must own, or that does not go with `group.protocol=consumer`,
            or whose value is no text, number or boolean.
    """
    kafka = configuration.kafka
    properties = _user_properties(kafka)
    settings = {**_DEFAULTS, **properties}
    if properties.get("group.protocol", "classic").lower() == "consumer":
        for name, instead in _CLASSIC_ONLY.items():
            if name in properties:
                raise _fault(
                    name, f"does not go with group.protocol=consumer ({instead}): remove one of the two"
                )
    else:
        settings.setdefault("partition.assignment.strategy", "cooperative-sticky")
    settings.update(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": kafka.group_id,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            # Out of range is an error to be seen and told, never a silent jump.
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
        }
    )
    return settings


def admin_settings(configuration: _Configuration) -> dict[str, Any]:
    """The properties of an admin client or a producer: the consumer's, without what only consumers know.

    Raises:
        SettingsError: as `consumer_settings`.
    """
    owned = _OWNED.keys() - {"bootstrap.servers"}
    settings = consumer_settings(configuration)
    return {name: value for name, value in settings.items() if name not in _CONSUMER_ONLY | owned}


def producer_settings(configuration: _Configuration) -> dict[str, Any]:
    """The properties of a producer that writes each record once and in order.

    Raises:
        SettingsError: as `consumer_settings`.
    """
    defaults = {
        "acks": "all",
        # A record that came in compressed may be larger than what a topic takes as it is.
        "compression.type": "lz4",
        "linger.ms": "0",
        # How large a record may be is for the broker to say (`max.message.bytes` of the topic).
        "message.max.bytes": "1000000000",
    }
    return {**defaults, **admin_settings(configuration), "enable.idempotence": "true"}


def check_settings(configuration: _Configuration) -> None:
    """Let librdkafka itself judge the properties. Reaches no broker; takes a few milliseconds.

    Raises:
        SettingsError: as `consumer_settings`, and for an unknown property, a value out of range, a
            certificate file that cannot be read, and whatever else librdkafka refuses.
    """
    settings = consumer_settings(configuration)
    del settings["bootstrap.servers"]
    silent = logging.Logger("kafka-settings", level=logging.CRITICAL + 1)
    try:
        Consumer(settings, logger=silent).close()
    except (KafkaException, TypeError, ValueError) as error:
        raise explain(error) from None


def settings_faults(kafka: KafkaSection) -> list[SettingsError]:
    """Everything that librdkafka and binlane refuse of the properties, each told once.

    What librdkafka refuses it tells one at a time: each is taken out, and the rest judged again.
    """
    left, faults = dict(kafka.properties), list[SettingsError]()
    while True:
        try:
            check_settings(_Judged(_Section(kafka.bootstrap_servers, kafka.group_id, left)))
        except SettingsError as fault:
            name = fault.key.removeprefix(f"{_KEY}.")
            if name not in left:  # of all together; behind another fault it may only follow from that one
                return faults or [fault]
            faults.append(fault)
            del left[name]
        else:
            return faults


@dataclass(frozen=True)
class _Section:
    bootstrap_servers: str
    group_id: str
    properties: Mapping[str, Any]


@dataclass(frozen=True)
class _Judged:
    kafka: KafkaSection


def explain(error: Exception) -> SettingsError:
    """What creating a client raised, as a fault of the configuration with its key and nearest spelling."""
    first = error.args[0] if error.args else error
    text = str(first.str() if hasattr(first, "str") else first).strip()
    found = _NAMED.search(text)
    name = (found[1] or found[2]) if found else None
    if name is None:
        name = next((part for part in re.findall(r"[a-z]+(?:[._][a-z]+)+", text) if part in _known()), None)
    if name is None:
        return SettingsError(_KEY, f"Kafka's client refuses them: {text}")
    if text.startswith("No such configuration property"):
        near = difflib.get_close_matches(name, _known(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        return _fault(name, f"unknown property; {hint}Allowed: what librdkafka's CONFIGURATION.md lists")
    return _fault(name, _without_value(text.removeprefix("Failed to create consumer: ")))


def _known() -> frozenset[str]:
    return _COMMON | _CONSUMER_ONLY


def _fault(name: str, problem: str) -> SettingsError:
    return SettingsError(f"{_KEY}.{name}", problem)


def _without_value(text: str) -> str:
    """The text without the value that librdkafka quotes: it may be a secret under a wrong name."""
    text = re.sub(r'^Invalid value ".*" for', "Invalid value for", text, flags=re.DOTALL)
    return re.sub(r'^(Configuration property "[^"]+") value .* is outside', r"\1 is outside", text)


def _user_properties(kafka: KafkaSection) -> dict[str, str]:
    properties: dict[str, str] = {}
    for name, value in kafka.properties.items():
        if name in _OWNED:
            raise _fault(name, f"binlane sets this property itself ({_OWNED[name]}): remove it")
        if name.endswith("_cb") or name in {"on_commit", "logger", "default.topic.config"}:
            raise _fault(name, "takes a program object, which a configuration file cannot hold: remove it")
        properties[name] = _as_text(name, value)
    return properties


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise _fault(
        name, f"found a value of type {type(value).__name__}; allowed: text, a number, true or false"
    )
