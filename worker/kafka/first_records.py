"""The first records of a topic, for commands. No group is joined, and nothing is committed."""

from __future__ import annotations

import time
from typing import Any, cast

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException

from handlers.kafka.librdkafka import SILENT, closed_in_time
from worker.configuration import Configuration
from worker.configuration.kafka_properties import consumer_settings
from worker.formats.interface import Record

MOST = 500
_SECONDS = 10.0


def first_records(configuration: Configuration, topic: str, most: int = MOST) -> list[Record]:
    """Return up to `most` records from the beginning of its partitions. Raises KafkaException."""
    settings = consumer_settings(configuration)
    settings.pop("group.instance.id", None)
    records: list[Any] = []
    with closed_in_time(Consumer(settings, logger=SILENT)) as consumer:
        partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        )
        unread, end = set(partitions), time.monotonic() + _SECONDS
        while unread and len(records) < most and time.monotonic() < end:
            for message in consumer.consume(most - len(records), timeout=0.2):
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
    return cast("list[Record]", records)
