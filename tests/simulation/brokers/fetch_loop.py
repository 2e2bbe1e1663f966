"""What librdkafka's own threads do for a consumer: fetch what is assigned and not paused, ahead of polls."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, Message, TopicPartition

from ..machine.scheduler import Process, Task
from .cluster import Cluster
from .fetching import Fetched
from .group import Place
from .logs import Entry, Log

__all__ = ["FetchLoop", "Found"]

_FETCH_RECORDS = 200

Found = tuple[Fetched, int, Message]
"""A message, and under which version of its partition it was fetched."""


class FetchLoop:
    """The part of a consumer below the group: pauses, positions, what was fetched ahead."""

    def __init__(self, cluster: Cluster, process: Process, *, tells_ends: bool) -> None:
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._process = process
        self._tells_ends = tells_ends
        self._fetched: dict[Place, Fetched] = {}
        self._paused: set[Place] = set()  # outlives assignments
        self._errors: deque[tuple[Fetched, Message]] = deque()
        self._poller: Task | None = None  # who waits in a poll
        self._closed = False
        cluster.topics.grew.append(self._wake)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            place = each.topic, each.partition
            if place in self._paused:
                continue
            self._paused.add(place)
            if place in self._fetched:
                self._fetched[place].rewind()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            place = each.topic, each.partition
            if place in self._paused:
                self._paused.discard(place)
                if place in self._fetched:
                    self._fetched[place].rewind()
        self._wake()

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        found = []
        for each in partitions:
            fetched = self._fetched.get((each.topic, each.partition))
            at = OFFSET_INVALID if fetched is None else fetched.position
            found.append(TopicPartition(each.topic, each.partition, at))
        return found

    def _collect(self, found: list[Found], most: int) -> None:
        full = [each for each in self._fetched.values() if each.buffer]
        while full and len(found) < most:
            fetched = full[int(self._scheduler.random.random() * len(full))]
            while fetched.buffer and len(found) < most:
                offset, entry = fetched.take()
                found.append((fetched, fetched.version, self._message(fetched.place, offset, entry)))
            full.remove(fetched)
        self._fetch()

    def _message(self, place: Place, offset: int, entry: Entry | None) -> Message:
        topic, partition = place
        if entry is None:
            end = KafkaError(KafkaError._PARTITION_EOF, "Broker: No more messages")
            return Message(topic=topic, partition=partition, offset=offset, error=end)
        return Message(topic=topic, partition=partition, offset=offset, value=entry.value, key=entry.key)

    def _fetch(self) -> None:
        for place, fetched in self._fetched.items():
            if fetched.fetching or fetched.buffer or fetched.stopped or place in self._paused:
                continue
            log = self._cluster.topics.log(*place)
            if fetched.is_resolved and log is not None and fetched.told_end == log.high == fetched.offset:
                continue  # a long poll: `grew` tells when there is more
            fetched.fetching = True
            seconds = self._scheduler.random.random() * self._cluster.answer_seconds
            version = fetched.version
            self._scheduler.later(
                self._process, seconds, lambda fetched=fetched, version=version: self._came(fetched, version)
            )

    def _came(self, fetched: Fetched, version: int) -> None:
        """The broker's answer to a fetch."""
        if fetched.version != version or self._fetched.get(fetched.place) is not fetched:
            return
        fetched.fetching = False
        log = self._cluster.topics.log(*fetched.place)
        if not self._cluster.answers(self._process) or log is None:
            fetched.fetching = True
            self._scheduler.later(self._process, 0.5, lambda: self._came(fetched, version))
            return
        if not fetched.is_resolved:
            stored = self._cluster.group.committed.get(fetched.place)
            fetched.resolve(log.low, log.high, None if stored is None else stored[0])
        if not log.low <= fetched.offset <= log.high:
            self._out_of_range(fetched, log)
            return
        records, fetched.offset = log.read(fetched.offset, _FETCH_RECORDS)
        fetched.watermark = log.high
        fetched.passed += len(records)
        fetched.buffer.extend(records)
        if fetched.offset == log.high and fetched.told_end != log.high:
            fetched.told_end = log.high
            if self._tells_ends:
                fetched.buffer.append((log.high, None))
        if fetched.buffer:
            self._wake()

    def _out_of_range(self, fetched: Fetched, log: Log) -> None:
        """With `auto.offset.reset=error`: told once, and the partition stands."""
        fetched.stopped = True
        topic, partition = fetched.place
        text = f"Broker: Offset out of range (broker end offset is {log.high})"
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET, text)
        message = Message(topic=topic, partition=partition, offset=fetched.offset, error=error)
        self._errors.append((fetched, message))
        self._wake()

    def _wake(self) -> None:
        if self._closed or self._process.dead:
            return
        self._fetch()
        if self._poller is not None:
            self._scheduler.wake(self._poller)

    def _statistics(self) -> str:
        topics: dict[str, Any] = {}
        for (topic, partition), each in self._fetched.items():
            told = {"next_offset": each.offset, "rxmsgs": each.passed}
            topics.setdefault(topic, {"partitions": {}})["partitions"][str(partition)] = told
        return json.dumps({"topics": topics})
