"""Kafka's client: its log, the properties of workers and producers, and messages about refused ones."""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from handlers.hanging_calls import Bounded
from handlers.logs import get_logger

_log = get_logger("kafka")

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

FINAL = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})
"""Trying longer does not help against these errors."""
REFUSED = "Kafka's client refuses them: "
_OF_ALL = "Failed to create consumer: "
_NAMED = re.compile(r'configuration property:? "([^"]+)"|`([a-z][a-z.]+\.[a-z.]+)`', re.IGNORECASE)
# Digits followed by letters, but not a hexadecimal number.
_WITH_UNIT = re.compile(r"\s*[-+]?(?!0[xX][0-9a-fA-F]+\s*$)[0-9.]+\s*[A-Za-z].*", re.DOTALL)
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


def close_in_time(consumer: Consumer, seconds: float = 10.0) -> None:
    """Close a consumer that is no member of a group, and do not wait for that longer than `seconds`.

    It never ends if librdkafka receives the answer to a fetch from outside the log in the same moment:
    https://github.com/confluentinc/librdkafka/issues/4514"""
    try:
        Bounded("close-consumer", consumer.close).within(seconds)
    except TimeoutError as late:
        _log.warning("consumer_not_closed", error=str(late))


@contextmanager
def closed_in_time(consumer: Consumer) -> Iterator[Consumer]:
    """Close the consumer at the end: see `close_in_time`."""
    try:
        yield consumer
    finally:
        close_in_time(consumer)


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


def cluster_metadata(settings: Mapping[str, Any], seconds: float, logger: logging.Logger) -> Any:
    """List the brokers and their topics, for at most `seconds`, as confluent_kafka.admin describes them (no
    type is exported). This creates no topic. Raises KafkaException with the reason."""
    errors: list[KafkaError] = []
    asked: dict[str, Any] = {**settings, "error_cb": errors.append}
    admin = AdminClient(asked, logger=logger)
    end = time.monotonic() + seconds
    while True:
        try:
            return admin.list_topics(timeout=1)
        except KafkaException as error:
            last: KafkaError = error.args[0]
        # The callback receives the reason; the call itself only times out.
        admin.poll(0)
        final = next((error for error in errors if error.code() in FINAL), None)
        if final is not None or time.monotonic() >= end:
            reasons = [error for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
            raise KafkaException(final or (reasons or [last])[-1])


def property_texts(properties: Mapping[str, Any], owned: Mapping[str, str], owner: str) -> dict[str, str]:
    """Convert a user's properties to text. `owned`: those that `owner` ("binlane sets this property") sets,
    and what to set instead. Raises SettingsError."""
    texts: dict[str, str] = {}
    for name, value in properties.items():
        if name in owned:
            raise fault(name, f"{owner} itself ({owned[name]}): remove it")
        if name.endswith("_cb") or name in {"on_commit", "logger", "default.topic.config"}:
            raise fault(name, "needs a Python object, which a configuration file cannot contain: remove it")
        if not isinstance(value, str | int | float):
            told = f"found a value of type {type(value).__name__}; allowed: text, a number, true or false"
            raise fault(name, told)
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def client_settings(servers: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of every client of the target, all as text. Raises SettingsError."""
    texts = property_texts(properties, _OWNED, "the handler sets it")
    return {**_DEFAULTS, **texts, "bootstrap.servers": servers}


def producer_settings(servers: str, properties: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Return the producer's properties. `timeout`: seconds for a message. Raises SettingsError."""
    return {
        # Shorter than the timeout, so a missing topic is reported as such and not as a timeout.
        "topic.metadata.propagation.max.ms": str(max(1, round(timeout * 500))),
        **client_settings(servers, properties),
        "enable.idempotence": "true",
        "acks": "all",
        "message.timeout.ms": str(max(1, round(timeout * 1000))),
    }


def check_properties(properties: Mapping[str, Any], timeout: float) -> None:
    """Let librdkafka check the properties, without a broker. Raises ValueError without values."""
    try:
        settings = producer_settings("", properties, timeout)
        del settings["bootstrap.servers"]
        refuse_units(settings)
        Producer(settings, logger=SILENT)
    except (KafkaException, TypeError, ValueError) as error:
        told = error if isinstance(error, SettingsError) else explain(error)
        _, _, name = told.key.partition("properties.")
        raise ValueError(f"{name}: {told.problem}" if name else told.problem) from None
