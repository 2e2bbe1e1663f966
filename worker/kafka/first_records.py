"""The first records of a topic, for commands. No group is joined, and nothing is committed."""

from __future__ import annotations

import time
from typing import Any, cast

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException

from handlers.kafka.librdkafka import SILENT, closed_in_time
from handlers.options.matching import topic_matcher
from worker.configuration import Configuration
from worker.configuration.kafka_properties import consumer_settings
from worker.formats.interface import Record

MOST = 500
_SECONDS = 10.0


def first_records(configuration: Configuration, topic: str, most: int = MOST) -> list[Record]:
    """Return up to `most` records from the beginning of the partitions. Raises KafkaException.

    `topic`: a name, or an expression that begins with ^."""
    settings = consumer_settings(configuration)
    settings.pop("group.instance.id", None)
    records: list[Any] = []
    with closed_in_time(Consumer(settings, logger=SILENT)) as consumer:
        found = consumer.list_topics(timeout=_SECONDS).topics
        names = filter(topic_matcher(topic), found)
        unread = {(name, number) for name in names for number in found[name].partitions}
        consumer.assign(
            [confluent_kafka.TopicPartition(*place, OFFSET_BEGINNING) for place in sorted(unread)]
        )
        end = time.monotonic() + _SECONDS
        while unread and len(records) < most and time.monotonic() < end:
            for message in consumer.consume(most - len(records), timeout=0.2):
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard((message.topic(), message.partition()))
                else:
                    raise KafkaException(error)
    if unread and not records:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no record arrived within {_SECONDS:g} s"))
    return cast("list[Record]", records)
