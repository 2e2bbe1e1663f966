"""From the `kafka:` section to librdkafka's properties.

Property names and meanings: librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException

from handlers.kafka.librdkafka import (
    CONSUMER_ONLY,
    PROPERTIES,
    REFUSED,
    SILENT,
    SettingsError,
    explain,
    fault,
    refuse_units,
)
from worker.configuration.sections import KafkaRule

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
    # Off in librdkafka: what a broker's disk or memory damaged would be handed on as if it had been sent so.
    "check.crcs": "true",
}

# librdkafka looks for new topics every 300 s: too long to wait for a table that is made while somebody looks.
_LOOKS_FOR_TOPICS = {"topic.metadata.refresh.interval.ms": "30000"}

# With the new protocol these are the broker's to say, and librdkafka refuses them.
_CLASSIC_ONLY = {
    "partition.assignment.strategy": "the broker assigns; group.remote.assignor chooses how",
    "session.timeout.ms": "the broker's group.consumer.session.timeout.ms says it",
    "heartbeat.interval.ms": "the broker's group.consumer.heartbeat.interval.ms says it",
}


class _Configuration(Protocol):
    @property
    def kafka(self) -> KafkaRule: ...


def consumer_settings(configuration: _Configuration) -> dict[str, Any]:
    """The properties of the worker's consumer, all values text.

    The user's properties come before binlane's defaults; those that binlane's promises rest on cannot be set.

    Raises SettingsError: a property that binlane must own, or that does not go with
    `group.protocol=consumer`, or whose value is no text, number or boolean.
    """
    kafka = configuration.kafka
    properties = _user_properties(kafka)
    has_patterns = any(topic.startswith("^") for topic in kafka.topics)
    settings = {**_DEFAULTS, **(_LOOKS_FOR_TOPICS if has_patterns else {}), **properties}
    if "group.protocol" in properties:  # librdkafka ignores the case; whoever reads these settings need not
        settings["group.protocol"] = properties["group.protocol"].lower()
    if settings.get("group.protocol") == "consumer":
        for name, instead in _CLASSIC_ONLY.items():
            if name in properties:
                raise fault(
                    name, f"does not go with group.protocol=consumer ({instead}): remove one of the two"
                )
    else:
        # Partitions of merged topics leave together: if only those with DDL did, what is queued of the others
        # would go on without it.
        strategy = "roundrobin" if kafka.ddl_topics else "cooperative-sticky"
        settings.setdefault("partition.assignment.strategy", strategy)
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

    Raises SettingsError: as `consumer_settings`."""
    owned = _OWNED.keys() - {"bootstrap.servers"}
    settings = consumer_settings(configuration)
    return {name: value for name, value in settings.items() if name not in CONSUMER_ONLY | owned}


def producer_settings(configuration: _Configuration) -> dict[str, Any]:
    """The properties of a producer that writes each record once and in order.

    Raises SettingsError: as `consumer_settings`."""
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

    Raises SettingsError: as `consumer_settings`, and for an unknown property, a value out of range, a
    certificate file that cannot be read, and whatever else librdkafka refuses.
    """
    settings = consumer_settings(configuration)
    del settings["bootstrap.servers"]
    refuse_units(settings)
    try:
        Consumer(settings, logger=SILENT).close()
    except (KafkaException, TypeError, ValueError) as error:
        raise explain(error) from None


def settings_faults(kafka: KafkaRule) -> list[SettingsError]:
    """Everything that librdkafka and binlane refuse of the properties, each told once.

    What librdkafka refuses it tells one at a time: each is taken out, and the rest judged again.
    """
    left, faults = dict(kafka.properties), list[SettingsError]()
    while found := _fault(kafka, left):
        name = found.key.removeprefix(f"{PROPERTIES}.")
        if found.of_all and name not in left and faults:  # it may only follow from those
            return faults
        culprit = _culprit(kafka, left, found, name)
        if culprit is None:
            return [*faults, SettingsError(PROPERTIES, found.problem)]
        faults.append(fault(culprit, found.problem.removeprefix(REFUSED)))
        del left[culprit]
    return faults


def _fault(kafka: KafkaRule, properties: Mapping[str, Any]) -> SettingsError | None:
    try:
        check_settings(_Judged(kafka.model_copy(update={"properties": properties})))
    except SettingsError as error:
        return error
    return None


def _culprit(kafka: KafkaRule, properties: Mapping[str, Any], found: SettingsError, named: str) -> str | None:
    """The property without which it is another fault or none: what librdkafka names may be another one, or
    stand nowhere (of an alias the first name, of a property of Java's what to set instead)."""
    for name in sorted(properties, key=lambda name: name != named):
        rest = {other: value for other, value in properties.items() if other != name}
        without = _fault(kafka, rest)
        if without is None or without.problem != found.problem:
            return name
    return None


@dataclass(frozen=True)
class _Judged:
    kafka: KafkaRule


def _user_properties(kafka: KafkaRule) -> dict[str, str]:
    properties: dict[str, str] = {}
    for name, value in kafka.properties.items():
        if name in _OWNED:
            raise fault(name, f"binlane sets this property itself ({_OWNED[name]}): remove it")
        if name.endswith("_cb") or name in {"on_commit", "logger", "default.topic.config"}:
            raise fault(name, "takes a program object, which a configuration file cannot hold: remove it")
        properties[name] = _as_text(name, value)
    return properties


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise fault(name, f"found a value of type {type(value).__name__}; allowed: text, a number, true or false")
