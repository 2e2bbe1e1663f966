"""Read partitions to their ends, for commands. No group is joined, and nothing is committed."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from datetime import datetime
from typing import Any, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import SILENT
from offsets.stores.kafka import text_of
from offsets.types import TopicPartition
from worker.configuration import Configuration
from worker.configuration.kafka_properties import admin_settings, consumer_settings
from worker.formats.interface import Record
from worker.kafka.connection import KAFKA_SECONDS, reach_kafka

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
