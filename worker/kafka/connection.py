"""Connect to everything in a configuration without changing it: Kafka, and every handler's target.

Also reads partitions to their ends, for commands. No group is joined, and nothing is committed."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from handlers.hanging_calls import Bounded
from handlers.kafka.librdkafka import FINAL, SILENT, cluster_metadata
from handlers.loading.registry import HandlerTypeError, OptionsError, create
from handlers.options.matching import topic_matcher
from offsets.stores.kafka import text_of
from offsets.types import TopicPartition
from worker.configuration import Configuration, HandlerEntry
from worker.configuration.kafka_properties import admin_settings, consumer_settings
from worker.formats.interface import Record
from worker.formats.registry import entry_for

KAFKA_SECONDS = 10.0
HANDLER_SECONDS = 60.0
"""Includes the start of a Java process."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of one attempt. `error` is None if it succeeded."""

    target: str
    detail: str = ""
    error: str | None = None


def reach_kafka(configuration: Configuration, seconds: float = KAFKA_SECONDS) -> list[Reached]:
    """Request the topics from the brokers, for at most `seconds`. Return an answer for Kafka, for each entry
    of `kafka.topics` and `kafka.ddl_topics`, and for the dead-letter topic.

    The request never creates a topic."""
    servers = configuration.kafka.bootstrap_servers
    try:
        metadata = cluster_metadata(admin_settings(configuration.kafka), seconds, SILENT)
    except KafkaException as fault:
        kind = "authentication failed" if fault.args[0].code() in FINAL else f"no answer within {seconds:g} s"
        kind = "TLS failed" if fault.args[0].code() == KafkaError._SSL else kind
        return [Reached(f"kafka {servers}", error=f"{kind}: {fault.args[0].str()}")]
    answers = [Reached(f"kafka {servers}", f"{len(metadata.brokers)} brokers")]
    patterns = dict.fromkeys([*configuration.kafka.topics, *configuration.kafka.ddl_topics])
    formats = configuration.format
    entries = ("^",) if isinstance(formats, str) else tuple(formats)
    answers += [_topic(metadata, pattern, entries) for pattern in patterns]
    if configuration.dead_letter is not None:
        answers.append(_dead_letter_topic(configuration, metadata, configuration.dead_letter.topic))
    return answers


def _topic(metadata: Any, pattern: str, formats: tuple[str, ...]) -> Reached:
    matches = topic_matcher(pattern)
    found = {name: topic for name, topic in metadata.topics.items() if matches(name)}
    if not found:
        what = "no topic matches it yet" if pattern.startswith("^") else "there is no such topic"
        return Reached(f"topic {pattern}", error=what)
    denied = [f"{name}: {topic.error.str()}" for name, topic in found.items() if topic.error is not None]
    if denied:
        return Reached(f"topic {pattern}", error="; ".join(denied))
    unread = [name for name in sorted(found) if entry_for(name, formats) is None]
    if unread:
        return Reached(
            f"topic {pattern}",
            error=f"no entry of format: matches {', '.join(unread)}: its records are not read",
        )
    told = ", ".join(f"{name} ({len(topic.partitions)} partitions)" for name, topic in sorted(found.items()))
    return Reached(f"topic {pattern}", told)


def _dead_letter_topic(configuration: Configuration, metadata: Any, name: str) -> Reached:
    """Check the topic. It may be missing if the brokers create it for the first letter."""
    target = f"dead-letter topic {name}"
    topic = metadata.topics.get(name)
    if topic is not None:
        if topic.error is not None:
            return Reached(target, error=topic.error.str())
        return Reached(target, f"{len(topic.partitions)} partitions")
    broker = ConfigResource(ConfigResource.Type.BROKER, str(next(iter(metadata.brokers))))
    try:
        admin = AdminClient(admin_settings(configuration.kafka), logger=SILENT)
        found = admin.describe_configs([broker], request_timeout=KAFKA_SECONDS)[broker].result(KAFKA_SECONDS)
        makes = found["auto.create.topics.enable"].value == "true"
    except (KafkaException, KeyError, TimeoutError):
        return Reached(target, "not there yet, and the brokers do not say whether they would create it")
    if makes:
        return Reached(target, "not there yet; the brokers create it with the first letter")
    return Reached(target, error="the topic does not exist, and the brokers do not create it: create it")


def reach_registry(configuration: Configuration) -> list[Reached]:
    """Connect to the schema registry, if there is one."""
    settings = configuration.schema_registry
    if settings is None:
        return []
    # Imported here because only configurations with a registry need its client.
    from worker.formats.schema_registry.client import Client, RegistryUnavailable, UnknownSchema  # noqa: PLC0415

    target = f"schema registry {settings.url}"
    try:
        client = Client(settings, configuration.folder)
        try:
            return [Reached(target, client.reach())]
        finally:
            client.close()
    except (RegistryUnavailable, UnknownSchema, OSError, ValueError) as error:
        return [Reached(target, error=str(error).removeprefix(f"{settings.url}: "))]


def reach_handlers(configuration: Configuration, seconds: float = HANDLER_SECONDS) -> Iterator[Reached]:
    """Call each handler's `Handler.check`: equal handlers once, each for at most `seconds`."""
    seen: list[HandlerEntry] = []
    for rule in configuration.tables:
        for entry in rule.handlers:
            if not any(map(entry.is_like, seen)):
                seen.append(entry)
                yield _reach(configuration, entry, seconds)


def _reach(configuration: Configuration, entry: HandlerEntry, seconds: float) -> Reached:
    shorter = HANDLER_SECONDS - 5  # must end before the limit
    context = configuration.context_for(entry, lanes=configuration.lanes.count, start_timeout=shorter)

    def attempt() -> str | None:
        try:
            create(entry, configuration.folder).check(context)
        except (HandlerTypeError, OptionsError) as error:
            return str(error)
        except BaseException as error:  # also SystemExit
            return f"{type(error).__name__}: {error}"
        return None

    try:
        error = Bounded(f"check-{entry.name}", attempt).within(seconds)
    except TimeoutError:
        error = f"no answer within {seconds:g} s"
    return Reached(f"handler {entry.name}", error=error)


# ---- reading partitions to their ends

_POLL_RECORDS, _POLL_SECONDS = 1_000, 0.02


class ReadFault(Exception):
    """One sentence for people: what cannot be read in Kafka, or stored there, and why."""


def connected(configuration: Configuration, *, group: str | None = None) -> tuple[Consumer, AdminClient]:
    """Return clients of a configuration's cluster. `group`: default: the worker's. Raises ReadFault."""
    reached = reach_kafka(configuration)[0]
    if reached.error is not None:
        raise ReadFault(f"{reached.target}: {reached.error}")
    settings = consumer_settings(configuration.kafka)
    # With a static member's name, this consumer would look like the worker itself.
    settings.pop("group.instance.id", None)
    settings["group.id"] = group or settings["group.id"]
    admin = AdminClient(admin_settings(configuration.kafka), logger=SILENT)
    return Consumer(settings, logger=SILENT), admin


def bounds_of(consumer: Consumer, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return each partition's first offset and end; nothing if there is no such topic. Raises ReadFault."""
    try:
        found = consumer.list_topics(topic, timeout=KAFKA_SECONDS).topics[topic]
        places = [TopicPartition(topic, number) for number in sorted(found.partitions)]
        known = {place: bounds(consumer, place) for place in places}
    except KafkaException as error:
        raise ReadFault(f"topic {topic}: {text_of(error)}") from None
    if found.error is not None and found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise ReadFault(f"topic {topic}: {found.error.str()}")
    return known


def bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return a partition's first offset, and its end. Raises KafkaException."""
    asked = confluent_kafka.TopicPartition(*place)
    return consumer.get_watermark_offsets(asked, timeout=KAFKA_SECONDS)


def at_times(
    consumer: Consumer, moments: Mapping[TopicPartition, datetime]
) -> dict[TopicPartition, int | None]:
    """Return the first record of each partition whose Kafka timestamp is at or after its moment. None: no
    record is that new. Raises ReadFault."""
    asked = [
        confluent_kafka.TopicPartition(*place, int(moment.timestamp() * 1000))
        for place, moment in moments.items()
    ]
    try:
        found = consumer.offsets_for_times(asked, timeout=KAFKA_SECONDS) if asked else []
    except KafkaException as error:
        raise ReadFault(f"cannot look up offsets by time: {text_of(error)}") from None
    for each in found:
        if each.error is not None:
            raise ReadFault(f"cannot look up {each.topic}[{each.partition}]: {each.error.str()}")
    return {
        TopicPartition(each.topic, each.partition): each.offset if each.offset >= 0 else None
        for each in found
    }


def read_between(
    consumer: Consumer, begins: Mapping[Any, int], ends: Mapping[Any, int]
) -> Generator[tuple[TopicPartition, int, Record | None]]:
    """Yield each record of these partitions with the offset that comes next. None: the partition ends there.

    Kafka reports no end while new records keep arriving, so `ends` are fixed. Raises ReadFault."""
    left: dict[tuple[str, int], int] = {at: first for at, first in begins.items() if first < ends[at]}
    # Assigned again, so that Kafka reports the end of each partition again.
    consumer.assign([confluent_kafka.TopicPartition(*place, first) for place, first in left.items()])
    last = time.monotonic()
    while left:
        for message in consumer.consume(_POLL_RECORDS, _POLL_SECONDS):
            place = TopicPartition(cast(str, message.topic()), cast(int, message.partition()))
            error, offset = message.error(), cast(int, message.offset())
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise ReadFault(f"cannot read {place}: {error.str()}")
            if place in left and error is not None:
                del left[place]
                yield place, offset, None
            elif place in left:
                if offset + 1 >= ends[place]:
                    del left[place]
                if offset < ends[place]:
                    yield place, offset + 1, cast(Record, message)
            last = time.monotonic()  # a slow reader does not mean that Kafka is silent
        if time.monotonic() - last > KAFKA_SECONDS:
            raise ReadFault(f"no answer from Kafka within {KAFKA_SECONDS:g} s")
