"""The table definitions that DDL topics tell, read before the first record is decoded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError

from worker.decoding import learn
from worker.formats.interface import Format, Record, SeparateDDL
from worker.kafka_errors import Stopping, client_logger, until_answered
from worker.logs import get_logger

__all__ = ["DDLHistory"]

log = get_logger("ddl_history")

_LOOKUP_SECONDS = 10.0
_POLL_RECORDS, _POLL_SECONDS = 1_000, 0.2


class DDLHistory:
    """Reads the DDL topics from their beginning to their end, each time a worker starts.

    A row is decoded by the definition that its table had at its place in the log, and that may have been told
    long before the committed offset. A consumer of its own, which joins no group and commits nothing.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        has_ddl: Callable[[str], bool],
        format_of: Callable[[str], Format],
        *,
        stopping: threading.Event,
    ) -> None:
        """`settings`: of the worker's consumer. `has_ddl`: whether a topic carries DDL."""
        self._settings = {name: value for name, value in settings.items() if name != "group.instance.id"}
        self._has_ddl = has_ddl
        self._format_of = format_of
        self._stopping = stopping

    def read(self, alive: Callable[[], None]) -> int:
        """Let the formats learn; returns how many records there were. Goes on until Kafka answers or the
        worker stops; `alive` is called while it goes on."""
        consumer = Consumer(self._settings, logger=client_logger())
        try:
            ends = self._ends(consumer, alive)
            records = self._learn(consumer, ends, alive) if ends else 0
        except Stopping:
            return 0
        finally:
            consumer.close()
        if ends:
            log.info("ddl_history_read", partitions=len(ends), records=records)
        return records

    def _ends(self, consumer: Consumer, alive: Callable[[], None]) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) -> (first offset, end) of all that holds something."""
        asked = partial(until_answered, alive=alive, stopping=self._stopping)
        metadata = asked(lambda: consumer.list_topics(timeout=_LOOKUP_SECONDS))
        ends = {}
        for name, topic in metadata.topics.items():
            if not self._has_ddl(name) or not isinstance(self._format_of(name), SeparateDDL):
                continue
            for number in topic.partitions:
                place = confluent_kafka.TopicPartition(name, number)
                look = partial(consumer.get_watermark_offsets, place, _LOOKUP_SECONDS)
                found = asked(look)
                if found[0] < found[1]:
                    ends[name, number] = found
        return ends

    def _learn(
        self,
        consumer: Consumer,
        ends: dict[tuple[str, int], tuple[int, int]],
        alive: Callable[[], None],
    ) -> int:
        consumer.assign([confluent_kafka.TopicPartition(*place, first) for place, (first, _) in ends.items()])
        left = set(ends)
        formats = {topic: cast(SeparateDDL, self._format_of(topic)) for topic, _ in ends}
        count = 0
        while left and not self._stopping.is_set():
            alive()
            for message in consumer.consume(_POLL_RECORDS, _POLL_SECONDS):
                place = (cast(str, message.topic()), cast(int, message.partition()))
                error = message.error()
                if error is None:
                    learn(formats[place[0]], cast(Record, message))
                    count += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    log.warning("kafka_error", error=error.str(), topic=place[0])
                    continue
                # Behind the last record may lie transaction markers: the end comes as a message of its own.
                if error is not None or cast(int, message.offset()) + 1 >= ends[place][1]:
                    left.discard(place)
        return count
