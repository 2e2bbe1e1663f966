"""A worker's positions, as its stores show them to commands, and moving them while it is stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from handlers.options.matching import topic_matcher
from offsets.finished import read
from offsets.restore import Start, began_with, choose_starts, later_topics
from offsets.stores.file_format import FileEntry
from offsets.stores.interface import CheckpointError
from offsets.stores.kafka import COORDINATOR_BUSY, KafkaStore, text_of
from offsets.topic_ids import TopicIds
from offsets.types import Checkpoint, TopicPartition
from worker.configuration import Configuration
from worker.kafka.connection import KAFKA_SECONDS, ReadFault, at_times, bounds, connected
from worker.partitions.own_store import journal_of, own_store, worded

_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Position:
    """One partition: what each store contains about it, and where a worker would start."""

    partition: TopicPartition
    beginning: int
    """The first offset that Kafka still has."""
    end: int
    """The offset of the next record to be written."""
    file: FileEntry | None
    kafka: Checkpoint | None
    start: Start
    begins_at: int
    """`start.offset` as a present offset, within those that Kafka has."""
    topic_id: str | None
    """Kafka's id of the topic, or None if it is unknown."""
    lost: str | None
    """Why `begins_at` differs from `start.offset`, if Kafka does not have that offset."""


@contextlib.contextmanager
def connect(configuration: Configuration) -> Iterator[Cluster]:
    """Open Kafka and the own store for the configuration's group.

    Raises ReadFault: Kafka cannot be reached, or rejects the credentials."""
    cluster = Cluster(configuration, *connected(configuration))
    try:
        yield cluster
    finally:
        cluster.close()


class Cluster:
    """What Kafka and the own store contain for one configuration's group. Made by `connect`."""

    def __init__(self, configuration: Configuration, consumer: Consumer, admin: AdminClient) -> None:
        self._group = configuration.kafka.group_id
        self._patterns = [*configuration.kafka.topics, *configuration.kafka.ddl_topics]
        self._rule = configuration.checkpoint
        self._consumer = consumer
        self._admin = admin
        self.kafka = KafkaStore(consumer, KAFKA_SECONDS)
        self.own = own_store(configuration)
        self.journal = journal_of(configuration)
        self._topic_ids = TopicIds(admin)
        self._topics: dict[str, list[int]] | None = None

    def close(self) -> None:
        """Close the connections and files."""
        self.own.close()
        self.kafka.close()
        if not self.kafka.alive:
            self._consumer.close()

    def missing(self) -> list[str]:
        """The entries of `kafka.topics` and `kafka.ddl_topics` that no topic matches."""
        return [pattern for pattern in self._patterns if not self._matching(pattern)]

    def partitions(self) -> list[TopicPartition]:
        """Return every partition of the configured topics, ascending."""
        topics = {name for pattern in self._patterns for name in self._matching(pattern)}
        return [TopicPartition(name, number) for name in sorted(topics) for number in self._partitions(name)]

    def positions(self) -> list[Position]:
        """Return the position of every partition of the configured topics, ascending.

        Raises CheckpointError: a store cannot be read; ReadFault: Kafka does not answer."""
        partitions = self.partitions()
        topics = {place.topic for place in partitions}
        in_file = self.own.load_entries(partitions)
        in_kafka = self.kafka.load_committed(partitions)
        bounds = {partition: self.bounds(partition) for partition in partitions}
        topic_ids = self._topic_ids.now(topics, KAFKA_SECONDS)
        is_latest = self._rule.initial == "latest"
        later = later_topics(topics, self._patterns, [*in_file, *in_kafka]) if is_latest else ()
        starts = worded(
            choose_starts(
                partitions,
                forced=lambda _: self._rule.force,
                initial=self._rule.initial,
                file=in_file,
                kafka=in_kafka,
                topic_ids=topic_ids,
                counts={name: 0 if name in later else len(self._partitions(name)) for name in topics},
                windows=read(self._rule.directory, [each.window for each in in_file.values() if each.window]),
            ),
            self.own,
        )
        moments = {at: start.offset for at, start in starts.items() if isinstance(start.offset, datetime)}
        times = at_times(self._consumer, moments)
        positions = []
        for partition, start in starts.items():
            beginning, end = bounds[partition]
            match start.offset:
                case int(offset):
                    begins_at, lost = self._within(offset, beginning, end)
                case "earliest":
                    begins_at, lost = beginning, None
                case "latest":
                    begins_at, lost = end, None
                case _:
                    found = times[partition]
                    begins_at, lost = end if found is None else found, None
            positions.append(
                Position(
                    partition=partition,
                    beginning=beginning,
                    end=end,
                    file=in_file.get(partition),
                    kafka=in_kafka[partition].checkpoint if partition in in_kafka else None,
                    start=start,
                    begins_at=begins_at,
                    topic_id=topic_ids.get(partition.topic),
                    lost=lost,
                )
            )
        return positions

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first offset that Kafka still has, and that of the next record to be written.

        Raises ReadFault: the partition does not exist, or Kafka does not answer."""
        topic, number = partition
        known = self._partitions(topic)
        if number not in known:
            what = f"its partitions are 0 to {known[-1]}" if known else "there is no such topic"
            raise ReadFault(f"topic {topic} has no partition {number}: {what}")
        try:
            return bounds(self._consumer, partition)
        except KafkaException as error:
            raise ReadFault(f"cannot see which offsets {partition} has: {text_of(error)}") from None

    def at_time(self, partition: TopicPartition, moment: datetime) -> int | None:
        """Return the first record whose Kafka timestamp is at or after `moment`, or None.

        Raises ReadFault: Kafka does not answer."""
        return at_times(self._consumer, {partition: moment})[partition]

    def refuse_active_group(self, partition: TopicPartition) -> None:
        """Raise ReadFault if the group has members, CheckpointError if Kafka does not answer."""
        # Waits until the group's coordinator is available. Describing the group does not.
        self.kafka.load_committed([partition])
        end = time.monotonic() + KAFKA_SECONDS
        while True:
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=KAFKA_SECONDS)
            try:
                members = asked[self._group].result(KAFKA_SECONDS + 1).members
                break
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.GROUP_ID_NOT_FOUND:
                    return
                if code not in COORDINATOR_BUSY or time.monotonic() >= end:
                    raise ReadFault(
                        f"cannot see whether group {self._group} is active: {text_of(error)}"
                    ) from None
                time.sleep(_AGAIN_SECONDS)
        if members:
            names = sorted({f"{each.client_id} at {each.host.lstrip('/')}" for each in members})
            raise ReadFault(
                f"group {self._group} is active ({', '.join(names)}): stop its workers first; a killed one "
                "counts until its session ends (45 s unless session.timeout.ms is set)"
            )

    def move(self, partition: TopicPartition, offset: int) -> None:
        """Set the partition's position in Kafka, then in the own store, with nothing finished ahead.

        Raises CheckpointError: Kafka rejected it, and nothing was moved. Raises ReadFault: the group is
        active, and nothing was moved; or Kafka has the new position and the own store does not."""
        numbers = self._partitions(partition.topic)
        others = [TopicPartition(partition.topic, number) for number in numbers]
        topic_id = self.topic_id(partition.topic)
        known = [each.checkpoint for each in self.kafka.load_committed(others).values()]
        with contextlib.suppress(CheckpointError):  # a store that cannot be written is reported below
            known += [each.checkpoint for each in self.own.load_entries(others).values()]
        began = began_with(known, topic_id)
        # If the group never ran, the other partitions still start at `initial`.
        checkpoints = {partition: Checkpoint(offset, (), topic_id, len(numbers) if began is None else began)}
        try:
            marks = self.kafka.save(checkpoints)
        except CheckpointError:
            self.refuse_active_group(partition)  # a member may just have joined: the likeliest reason
            raise
        try:
            self.own.save(checkpoints, marks)
        except CheckpointError as error:
            raise ReadFault(
                f"moved in Kafka, but not in the {self.own.title}: {error}. Run this again after fixing that"
            ) from None

    def topic_id(self, topic: str) -> str | None:
        """Return Kafka's id of the topic, or None if it is unknown."""
        return self._topic_ids.now([topic], KAFKA_SECONDS).get(topic)

    def _all_topics(self) -> dict[str, list[int]]:
        if self._topics is None:
            try:
                found = self._admin.list_topics(timeout=KAFKA_SECONDS).topics
            except KafkaException as error:
                raise ReadFault(f"cannot list Kafka's topics: {text_of(error)}") from None
            self._topics = {name: sorted(topic.partitions) for name, topic in found.items()}
        return self._topics

    def _partitions(self, topic: str) -> list[int]:
        return self._all_topics().get(topic, [])

    def _matching(self, pattern: str) -> list[str]:
        matches = topic_matcher(pattern)
        return [name for name in self._all_topics() if matches(name)]

    def _within(self, offset: int, beginning: int, end: int) -> tuple[int, str | None]:
        """Where the worker continues if Kafka does not have the offset."""
        if offset < beginning:
            return beginning, f"Kafka has deleted {offset} to {beginning - 1}"
        if offset > end:
            place = end if self._rule.initial == "latest" else beginning
            return place, f"Kafka has nothing from {end} on: the topic was recreated or truncated"
        return offset, None
