"""The table definitions in DDL topics, read before the first record is decoded."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError

from handlers.kafka.librdkafka import client_logger, closed_in_time
from handlers.logs import get_logger
from offsets.types import TopicPartition
from worker.formats.decoding import learn
from worker.formats.interface import Format, NamesSchemas, Record, SeparateDDL
from worker.kafka.errors import Stopping, until_answered
from worker.kafka.unreadable_batch import UNREADABLE, EndUnknown, end_of_batch

log = get_logger("ddl_history")

_LOOKUP_SECONDS = 10.0
_POLL_RECORDS, _POLL_SECONDS = 1_000, 0.2
_LOOK_SECONDS, _REFUSED_SECONDS = 10.0, 1.0
"""Seconds without a record, or after an error, after which the remaining records are looked up again."""
_SAY_SECONDS = 60.0
_SCHEMA_SECONDS = 0.05

Place = tuple[str, int]


@dataclass(eq=False)
class DDLHistory:
    """Reads the DDL topics from start to end each time a worker starts.

    A row is decoded with the definition that its table had at its place in the log. The definition may be
    much older than the committed offset. Uses its own consumer, which joins no group and commits nothing.

    `settings`: the worker's consumer settings. `has_ddl`: whether a topic carries DDL."""

    settings: InitVar[dict[str, Any]]
    has_ddl: Callable[[str], bool]
    format_of: Callable[[str], Format]
    _: KW_ONLY
    stopping: threading.Event

    def __post_init__(self, settings: dict[str, Any]) -> None:
        self._settings = {name: value for name, value in settings.items() if name != "group.instance.id"}
        self._ends: dict[Place, tuple[int, int]] = {}
        self._unread: dict[Place, int] = {}  # the next offset of each place not read to its end
        self._error = ""
        self.waits: str | None = None
        """What is still being read, or None. Any thread."""
        self.reason: str | None = None
        """Which partitions return no records although Kafka answers, or None. Any thread."""

    def read(self, alive: Callable[[], object]) -> int:
        """Let the formats learn the definitions. Returns the number of records. Continues until Kafka answers
        or the worker stops, and calls `alive` meanwhile."""
        with closed_in_time(Consumer(self._settings, logger=client_logger())) as consumer:
            try:
                records = self._learn(consumer, alive)
            except Stopping:
                return 0
            finally:
                self.waits = self.reason = None
        if self._ends:
            log.info("ddl_history_read", partitions=len(self._ends), records=records)
        return records

    def _look(self, consumer: Consumer, alive: Callable[[], object]) -> dict[Place, tuple[int, int]]:
        """(topic, partition) -> (first offset, end), for all that have records."""
        found = {}
        for name, topic in consumer.list_topics(timeout=_LOOKUP_SECONDS).topics.items():
            if not self.has_ddl(name) or not isinstance(self.format_of(name), SeparateDDL):
                continue
            for number in topic.partitions:
                alive()
                place = confluent_kafka.TopicPartition(name, number)
                first, end = consumer.get_watermark_offsets(place, _LOOKUP_SECONDS)
                if first < end:
                    found[name, number] = first, end
        return found

    def _begin(self, consumer: Consumer, alive: Callable[[], object], places: Iterable[Place] | None) -> None:
        """Fetch these (None: all) from their present offsets. During the reading, retention may delete
        records, and a topic may be deleted or recreated."""
        self._ends = until_answered(lambda: self._look(consumer, alive), alive=alive, stopping=self.stopping)
        left = {}
        for place in self._ends if places is None else places:
            first, end = self._ends.get(place, (0, 0))
            begin = self._unread.get(place, first)
            begin = begin if first <= begin <= end else first
            if begin < end:
                left[place] = begin
        self._unread = left
        consumer.assign([confluent_kafka.TopicPartition(*place, begin) for place, begin in left.items()])

    def _learn(self, consumer: Consumer, alive: Callable[[], object]) -> int:
        self._unread = {}
        self._begin(consumer, alive, None)
        count, quiet, look_at = 0, 0.0, _LOOK_SECONDS  # seconds in which Kafka could have returned a record
        while self._unread and not self.stopping.is_set():
            alive()
            began = time.monotonic()
            messages = consumer.consume(_POLL_RECORDS, _POLL_SECONDS)
            quiet += time.monotonic() - began
            for message in messages:
                place = (cast(str, message.topic()), cast(int, message.partition()))
                error, offset = message.error(), cast(int, message.offset())
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    alive()  # it takes a while to find the end of a batch
                    if error.code() in UNREADABLE and self._pass_over(place, offset):
                        look_at = quiet
                        break  # all are fetched again: bytes behind a damaged head look like batches
                    log.error("kafka_error", error=error.str(), topic=place[0])
                    self._error = error.str()
                    look_at = min(look_at, quiet + _REFUSED_SECONDS)
                    continue
                if place not in self._unread:
                    continue
                quiet, look_at = 0.0, min(look_at, _LOOK_SECONDS)
                self._error = ""
                if error is None:
                    format_, record = self.format_of(place[0]), cast(Record, message)
                    self._await_schema(format_, record, alive)
                    learn(cast(SeparateDDL, format_), record)
                    count += 1
                    self._unread[place] = offset + 1
                # Transaction markers may follow the last record: the end arrives as a separate message.
                if error is not None or offset + 1 >= self._ends[place][1]:
                    del self._unread[place]
            self._tell(quiet)
            if quiet >= look_at:
                self._begin(consumer, alive, list(self._unread))
                look_at = quiet + _LOOK_SECONDS
        return count

    def _pass_over(self, place: Place, offset: int | None) -> bool:
        """Continue after the unreadable batch at `offset`. If a person has not skipped it before, the fetcher
        reaches it later, and no row behind it continues until a person says so."""
        if offset is None or offset < self._unread.get(place, math.inf):
            return False
        try:
            end = end_of_batch(self._settings, TopicPartition(*place), offset)
        except EndUnknown:  # it is asked for again
            return False
        self._unread[place] = end
        log.error("ddl_batch_passed_over", partition=str(TopicPartition(*place)), first=offset, end=end)
        return True

    def _await_schema(self, format_: Format, record: Record, alive: Callable[[], object]) -> None:
        """Wait until the record's schema is known. Raises Stopping."""
        while isinstance(format_, NamesSchemas) and not format_.ready([record]):
            alive()
            self.waits = (
                f"waiting for the schema registry, because of a record of {record.topic()} (kafka.ddl_topics)"
            )
            if self.stopping.wait(_SCHEMA_SECONDS):
                raise Stopping

    def _tell(self, quiet: float) -> None:
        names = ", ".join(f"{topic}[{number}]" for topic, number in list(self._unread)[:5])
        told = f": {self._error}" if self._error else ""
        self.waits = f"reading the table definitions (kafka.ddl_topics) of {names}{told}" if names else None
        if quiet < _SAY_SECONDS or not names:
            self.reason = None
            return
        if self.reason is None:
            log.error(
                "ddl_history_standstill",
                partitions=names,
                error=self._error or None,
                found="Kafka answers and has records there, but returns none",
                hint="rows are read after their table definitions; check the Read ACL of kafka.ddl_topics",
            )
        self.reason = f"no table definition (kafka.ddl_topics) arrived for {quiet:.0f} s from {names}{told}"
