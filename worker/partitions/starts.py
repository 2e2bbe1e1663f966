"""Where newly assigned partitions start (also by `checkpoint.force`), and the questions to Kafka for that."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer

from handlers.options.matching import topics_matcher
from offsets.finished import read, remove_unnamed
from offsets.restore import Start, choose_starts, later_topics, needs_the_rest_of
from offsets.stores.file_format import FileEntry
from offsets.stores.interface import CheckpointError, OwnStore, StoreAway
from offsets.stores.polled import PolledKafkaStore
from offsets.topic_ids import TopicIds
from offsets.types import Committed, Mark, TopicPartition
from worker.configuration import Configuration
from worker.configuration.kafka_properties import consumer_settings
from worker.kafka.errors import ANSWER_SECONDS, NOWHERE, answered, until_answered
from worker.partitions.own_store import worded

Answer = TypeVar("Answer")

LOOKUP_SECONDS = 5.0
_ID_SECONDS = 2.0


@dataclass(eq=False)
class Starts:
    """Finds where partitions start. Only on the fetcher's thread.

    `alive`: called during long steps, with the seconds that the next step may take."""

    configuration: Configuration
    local: OwnStore
    kafka: PolledKafkaStore
    ids: TopicIds
    _: KW_ONLY
    alive: Callable[[float], object]
    stopping: threading.Event

    def __post_init__(self) -> None:
        settings = consumer_settings(self.configuration.kafka)
        self.incremental = settings.get("group.protocol") == "consumer" or "cooperative" in str(
            settings.get("partition.assignment.strategy", "")
        )
        """Whether a rebalance revokes only the partitions that move."""
        self.forced = ForcedStart()
        self._first: Collection[str] | None = None
        """With `latest`: the topics with which the group began, as far as this worker can see."""

    def adopt(self, now: Configuration) -> None:
        """The configuration was reloaded."""
        self.configuration = now

    def begin(self, consumer: Consumer) -> None:
        """Prepare `force` and `initial: latest` before the group is joined.

        Raises Stopping. Raises CheckpointError: the group has not read a topic of `kafka.ddl_topics`."""
        checkpoint, kafka = self.configuration.checkpoint, self.configuration.kafka
        if not (checkpoint.force or checkpoint.initial == "latest" or kafka.ddl_topics):
            return
        patterns = [*kafka.topics, *kafka.ddl_topics]
        wanted = topics_matcher(patterns)
        found = self.asked(lambda: consumer.list_topics(timeout=LOOKUP_SECONDS)).topics
        topics = {name: found[name].partitions for name in found if wanted(name)}
        places = [TopicPartition(name, number) for name in topics for number in topics[name]]
        committed = self.asked(lambda: self.kafka.load_committed(places))
        known = {place: each.offset for place, each in self._entries(places).items()}
        known |= {place: each.checkpoint.offset for place, each in committed.items()}
        if checkpoint.initial == "latest":
            self._first = topics.keys() - later_topics(topics, patterns, known)
        if checkpoint.force:
            before = {place: committed.get(place) for place in places}
            self.forced = ForcedStart(before, self.topic_ids(topics))
        else:
            self._refuse_late_ddl(consumer, places, known)

    def _refuse_late_ddl(
        self, consumer: Consumer, places: list[TopicPartition], known: Mapping[TopicPartition, int]
    ) -> None:
        """Raise CheckpointError if the group has read rows, but not the topic with their DDL. Old statements
        would be applied after rows that followed them."""
        kafka, initial = self.configuration.kafka, self.configuration.checkpoint.initial
        has_ddl = topics_matcher(kafka.ddl_topics)
        named = initial if isinstance(initial, Mapping) else {}

        def begins(place: TopicPartition, at: int | None = None) -> bool:
            where = confluent_kafka.TopicPartition(*place)
            first, end = self.asked(lambda: consumer.get_watermark_offsets(where, timeout=ANSWER_SECONDS))
            return first == (end if at is None else at)

        for place in places:
            topic, number = place
            # Debezium's marks of transactions contain no DDL.
            if place in known or topic in named or not has_ddl(topic) or topic.endswith(".transaction"):
                continue
            # Debezium names the topics of rows after that of their DDL.
            others = [each for each in places if each.topic not in (topic, f"{topic}.transaction")]
            own = [each for each in others if each.topic.startswith(f"{topic}.")] or others
            read = {each: known[each] for each in own if each in known}
            if not begins(place) and not all(map(begins, read, read.values())):
                raise CheckpointError(
                    f"{place} in kafka.ddl_topics is new to the group {kafka.group_id}, which has positions "
                    "in topics with rows: old statements would be applied after rows that followed them. Say "
                    f"where it starts: binlane checkpoint set CONFIG --topic {topic} --partition {number} "
                    "--time TIME (of the last row that was applied; or --offset 0, to apply them all again)"
                )

    def of(
        self, consumer: Consumer, partitions: list[TopicPartition], topic_ids: Mapping[str, str]
    ) -> tuple[dict[TopicPartition, Start], dict[TopicPartition, Mark]]:
        """Return where each partition starts, and the mark that identifies Kafka's commit for it."""
        self.remove_old_maps()
        entries = self._entries(partitions)
        committed = self.asked(lambda: self.kafka.load_committed(partitions))
        checkpoint = self.configuration.checkpoint
        counts: dict[str, int] = {}
        for topic in needs_the_rest_of(partitions, checkpoint.initial, entries, committed):
            asked = partial(consumer.list_topics, topic, timeout=LOOKUP_SECONDS)
            found = self.asked(asked).topics
            counts[topic] = len(found[topic].partitions) if topic in found else 0
            others = [
                other
                for number in range(counts[topic])
                if (other := TopicPartition(topic, number)) not in partitions
            ]
            entries |= self._entries(others)
            committed |= self.asked(partial(self.kafka.load_committed, others))
            if self._first is not None and topic not in self._first:
                counts[topic] = 0
        windows = [name for place in partitions if place in entries and (name := entries[place].window)]
        chosen = choose_starts(
            partitions,
            forced=lambda partition: (
                checkpoint.force
                and self.forced.applies(partition, committed.get(partition), topic_ids.get(partition.topic))
            ),
            initial=checkpoint.initial,
            file=entries,
            kafka=committed,
            topic_ids=topic_ids,
            counts=counts,
            windows=read(checkpoint.directory, windows, remove=True),
        )
        starts = worded(chosen, self.local)
        if checkpoint.force:
            since = "checkpoint.force does not apply: committed since this worker started, or new since then"
            for partition, start in starts.items():
                if start.source != "force":
                    starts[partition] = replace(start, reason=f"{start.reason}; {since}")
        return starts, {partition: each.mark for partition, each in committed.items()}

    def remove_old_maps(self) -> None:
        """Remove the maps of dead workers that no checkpoint refers to any more."""
        with contextlib.suppress(CheckpointError):
            names = [each.window for each in self.local.entries().values() if each.window]
            group = self.configuration.kafka.group_id
            remove_unnamed(self.configuration.checkpoint.directory, group, names)

    def _entries(self, partitions: list[TopicPartition]) -> dict[TopicPartition, FileEntry]:
        try:
            return self.local.load_entries(partitions)
        except StoreAway:  # as for Kafka: its content cannot be guessed
            return self.asked(lambda: self.local.load_entries(partitions))

    def offset(self, consumer: Consumer, partition: TopicPartition, start: Start) -> int:
        """Convert the start to librdkafka's terms. NOWHERE if Kafka does not answer soon."""
        place = start.offset
        if isinstance(place, int):
            return place
        if place == "earliest":
            return OFFSET_BEGINNING
        where = confluent_kafka.TopicPartition(*partition)

        def ask() -> int:
            if isinstance(place, datetime):
                where.offset = int(place.timestamp() * 1000)
                found = consumer.offsets_for_times([where], timeout=ANSWER_SECONDS)[0]
                if found.offset >= 0:
                    return int(found.offset)
            return consumer.get_watermark_offsets(where, timeout=ANSWER_SECONDS)[1]

        self.alive(0.0)
        found = answered(ask, partition)
        return NOWHERE if found is None else found

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """Return Kafka's answer. Repeats the question, because a start cannot be guessed. Raises Stopping."""
        return until_answered(ask, alive=lambda: self.alive(0.0), stopping=self.stopping)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return Kafka's ids of these topics, as far as the brokers report them soon."""
        return self.ids.now(topics, _ID_SECONDS, lambda: self.alive(0.0))


@dataclass(eq=False)
class ForcedStart:
    """Whether a partition must still start at `initial`: until the group commits a position in it.

    A partition that returns, or that another member started at `initial` too, continues there. One revoked
    before its first commit starts at `initial` again. New partitions and recreated topics start as without
    `force`."""

    before: dict[TopicPartition, Committed | None] = field(default_factory=dict)
    """The partitions that existed before this worker joined the group, with their commits."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Their topics' known ids."""

    def over(self, partition: TopicPartition) -> None:
        """The worker has committed here. That still counts if Kafka drops the commit with the topic."""
        self.before.pop(partition, None)

    def applies(
        self, partition: TopicPartition, committed: Committed | None, topic_id: str | None = None
    ) -> bool:
        """Whether it must start at `initial`. False: the partition did not exist before, or the group
        has committed since."""
        if partition not in self.before or committed != self.before[partition]:
            return False
        return topic_id is None or self.topic_ids.get(partition.topic, topic_id) == topic_id
