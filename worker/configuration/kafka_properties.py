"""Convert the `kafka:` section to librdkafka's properties.

Property names and meanings: librdkafka's CONFIGURATION.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException

from handlers.kafka import librdkafka
from worker.configuration.sections import KafkaRule

# Properties that binlane's guarantees depend on, and what to set instead.
_OWNED = {
    "bootstrap.servers": "set kafka.bootstrap_servers instead",
    "metadata.broker.list": "set kafka.bootstrap_servers instead",
    "group.id": "set kafka.group_id instead",
    "enable.auto.commit": "an offset is committed only when its record is finished; see checkpoint.interval",
    "auto.commit.enable": "an offset is committed only when its record is finished; see checkpoint.interval",
    "enable.auto.offset.store": "an offset is committed only when its record is finished",
    "auto.offset.reset": "checkpoint.initial decides where a start begins",
    "enable.partition.eof": "binlane needs it to know when a partition has been read to its end",
}

_DEFAULTS = {
    "client.id": "binlane",
    # With librdkafka's 1,000 ms the queue runs empty between fetches. 5 ms triples the throughput.
    "fetch.queue.backoff.ms": "5",
    # The fetch queue uses memory beyond `lanes.max_bytes`. librdkafka's own default is 64 MiB.
    "queued.max.messages.kbytes": "32768",
    "isolation.level": "read_committed",
    # Off in librdkafka. Without it, a record damaged on a broker's disk or in its memory is accepted.
    "check.crcs": "true",
}

# librdkafka looks for new topics every 300 s, too long for a user who waits for a new table.
_LOOKS_FOR_TOPICS = {"topic.metadata.refresh.interval.ms": "30000"}

# With the new protocol the broker sets these, and librdkafka rejects them.
_CLASSIC_ONLY = {
    "partition.assignment.strategy": "the broker assigns partitions; set group.remote.assignor instead",
    "session.timeout.ms": "the broker's group.consumer.session.timeout.ms applies",
    "heartbeat.interval.ms": "the broker's group.consumer.heartbeat.interval.ms applies",
}


def consumer_settings(kafka: KafkaRule) -> dict[str, Any]:
    """Return the properties of the worker's consumer. All values are text.

    The user's properties override binlane's defaults, except those that binlane's guarantees depend on.

    Raises SettingsError: a property that binlane sets itself, one that `group.protocol=consumer` excludes, or
    a value that is not text, a number or a boolean."""
    properties = librdkafka.property_texts(kafka.properties, _OWNED, "binlane sets this property")
    has_patterns = any(topic.startswith("^") for topic in kafka.topics)
    settings = {**_DEFAULTS, **(_LOOKS_FOR_TOPICS if has_patterns else {}), **properties}
    if "group.protocol" in properties:  # librdkafka ignores case; code that reads the settings need not
        settings["group.protocol"] = properties["group.protocol"].lower()
    if settings.get("group.protocol") == "consumer":
        for name, instead in _CLASSIC_ONLY.items():
            if name in properties:
                raise librdkafka.fault(
                    name, f"is not allowed with group.protocol=consumer ({instead}): remove one of the two"
                )
    else:
        # With DDL topics, all partitions must be revoked together. Otherwise the queued records of the others
        # would continue without the DDL.
        strategy = "roundrobin" if kafka.ddl_topics else "cooperative-sticky"
        settings.setdefault("partition.assignment.strategy", strategy)
    settings.update(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": kafka.group_id,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            # An offset out of range must be a reported error, never a silent jump.
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
        }
    )
    return settings


def admin_settings(kafka: KafkaRule) -> dict[str, Any]:
    """Return the properties of an admin client or a producer: the consumer's, without consumer-only ones.

    Raises SettingsError: see `consumer_settings`."""
    owned = _OWNED.keys() - {"bootstrap.servers"}
    settings = consumer_settings(kafka)
    return {name: value for name, value in settings.items() if name not in librdkafka.CONSUMER_ONLY | owned}


def producer_settings(kafka: KafkaRule) -> dict[str, Any]:
    """Return the properties of a producer that writes each record once and in order.

    Raises SettingsError: see `consumer_settings`."""
    defaults = {
        "acks": "all",
        # A record that was compressed at the source may exceed the topic's limit without compression.
        "compression.type": "lz4",
        "linger.ms": "0",
        # The broker limits the size of a record (`max.message.bytes` of the topic).
        "message.max.bytes": "1000000000",
    }
    return {**defaults, **admin_settings(kafka), "enable.idempotence": "true"}


def check_settings(kafka: KafkaRule) -> None:
    """Let librdkafka check the properties. Connects to no broker; takes a few milliseconds.

    Raises SettingsError: as `consumer_settings`, and for anything that librdkafka rejects. Examples: an
    unknown property, a value out of range, a certificate file that cannot be read."""
    settings = consumer_settings(kafka)
    del settings["bootstrap.servers"]
    librdkafka.refuse_units(settings)
    try:
        Consumer(settings, logger=librdkafka.SILENT).close()
    except (KafkaException, TypeError, ValueError) as error:
        raise librdkafka.explain(error) from None


def settings_faults(kafka: KafkaRule) -> list[librdkafka.SettingsError]:
    """Return every fault of the properties, each once.

    librdkafka reports one fault at a time: the faulty property is removed, and the rest is checked again."""
    left, faults = dict(kafka.properties), list[librdkafka.SettingsError]()
    while found := _fault(kafka, left):
        name = found.key.removeprefix(f"{librdkafka.PROPERTIES}.")
        if found.of_all and name not in left and faults:  # it may only follow from the earlier faults
            return faults
        culprit = _culprit(kafka, left, found, name)
        if culprit is None:
            return [*faults, librdkafka.SettingsError(librdkafka.PROPERTIES, found.problem)]
        faults.append(librdkafka.fault(culprit, found.problem.removeprefix(librdkafka.REFUSED)))
        del left[culprit]
    return faults


def _fault(kafka: KafkaRule, properties: Mapping[str, Any]) -> librdkafka.SettingsError | None:
    try:
        check_settings(kafka.model_copy(update={"properties": properties}))
    except librdkafka.SettingsError as error:
        return error
    return None


def _culprit(
    kafka: KafkaRule, properties: Mapping[str, Any], found: librdkafka.SettingsError, named: str
) -> str | None:
    """Find the property whose removal removes the fault. The name that librdkafka reports may not be in the
    file: for an alias it reports the first name, for a Java property the replacement."""
    for name in sorted(properties, key=lambda name: name != named):
        rest = {other: value for other, value in properties.items() if other != name}
        without = _fault(kafka, rest)
        if without is None or without.problem != found.problem:
            return name
    return None
