"""Kafka's client: its log, its properties, and messages about refused properties.

Property names and meanings: librdkafka's CONFIGURATION.md."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping

from confluent_kafka import KafkaException, Producer

PROPERTIES = "kafka.properties"
"""The key of Kafka properties in the worker's configuration."""

_CONSUMER_ONLY_TEXT = """
auto.commit.interval.ms check.crcs consume.callback.max.messages coordinator.query.interval.ms
fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
fetch.wait.max.ms group.instance.id group.protocol group.protocol.type group.remote.assignor
heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms offset.store.method
partition.assignment.strategy queued.max.messages.kbytes queued.min.messages session.timeout.ms
"""
CONSUMER_ONLY = frozenset(_CONSUMER_ONLY_TEXT.split())

# Only for suggestions of spelling: librdkafka decides what exists.
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

REFUSED = "Kafka's client refuses them: "
_OF_ALL = "Failed to create consumer: "
_NAMED = re.compile(r'configuration property:? "([^"]+)"|`([a-z][a-z.]+\.[a-z.]+)`', re.IGNORECASE)
# Digits followed by letters, but not a hexadecimal number.
_WITH_UNIT = re.compile(r"\s*[-+]?(?!0[xX][0-9a-fA-F]+\s*$)[0-9.]+\s*[A-Za-z].*", re.DOTALL)


class SettingsError(ValueError):
    """A Kafka property that cannot be used: `key` is its path in the configuration, `problem` a sentence.

    Its text is `key: problem`, and never contains the property's value."""

    def __init__(self, key: str, problem: str, *, of_all: bool = False) -> None:
        """`of_all`: each property is valid by itself, but the combination is not."""
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem
        self.of_all = of_all


class _Told(logging.Filter):
    """Drops librdkafka's line for each failed connection attempt. KafkaErrors logs the same less often."""

    def filter(self, record: logging.LogRecord) -> bool:
        # The client logs "%s [%s] %s" with the kind of line as the first argument.
        return not record.getMessage().startswith("FAIL")


SILENT = logging.Logger("kafka-silent", level=logging.CRITICAL + 1)
"""Logger of a client whose errors are reported by its creator."""


def client_logger() -> logging.Logger:
    """Return librdkafka's logger, with its filter."""
    logger = logging.getLogger("librdkafka")
    if not any(isinstance(known, _Told) for known in logger.filters):
        logger.addFilter(_Told())
    return logger


def explain(error: Exception) -> SettingsError:
    """Turn an error from creating a client into a configuration fault, with its key and a suggestion."""
    first = error.args[0] if error.args else error
    text = str(first.str() if hasattr(first, "str") else first).strip()
    of_all = text.startswith(_OF_ALL)
    text = text.removeprefix(_OF_ALL)
    found = _NAMED.search(text)
    name = (found[1] or found[2]) if found else None
    if name is None:
        name = next((part for part in re.findall(r"[a-z]+(?:[._][a-z]+)+", text) if part in _known()), None)
    if name is None:
        return SettingsError(PROPERTIES, f"{REFUSED}{text}", of_all=of_all)
    if text.startswith("No such configuration property"):
        near = difflib.get_close_matches(name, _known(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        return fault(name, f"unknown property; {hint}Allowed: what librdkafka's CONFIGURATION.md lists")
    return SettingsError(f"{PROPERTIES}.{name}", _without_value(text), of_all=of_all)


def refuse_units(properties: Mapping[str, object]) -> None:
    """Refuse numbers with a unit: librdkafka reads `30s` as 30, in any unit. Raises SettingsError."""
    for name, value in properties.items():
        if isinstance(value, str) and _WITH_UNIT.fullmatch(value) and _is_number(name):
            raise fault(name, "found letters after a number; allowed: a number without a unit")


def _is_number(name: str) -> bool:
    """Whether librdkafka refuses letters as the property's value."""
    try:
        Producer({name: "x"}, logger=SILENT)
    except KafkaException as error:
        return "Invalid value for configuration property" in str(error)
    return False


def _known() -> frozenset[str]:
    return _COMMON | CONSUMER_ONLY


def fault(name: str, problem: str) -> SettingsError:
    return SettingsError(f"{PROPERTIES}.{name}", problem)


def _without_value(text: str) -> str:
    """Remove the value that librdkafka quotes: it may be a secret under a wrong name."""
    text = re.sub(r'^Invalid value ".*" for', "Invalid value for", text, flags=re.DOTALL)
    return re.sub(r'^(Configuration property "[^"]+") value .* is outside', r"\1 is outside", text)
