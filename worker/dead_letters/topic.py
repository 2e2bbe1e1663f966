"""Reading the dead-letter topic from commands, and storing which of its letters were replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from datetime import datetime

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import closed_in_time
from offsets.finished.reading import covered
from offsets.stores.interface import CheckpointError
from offsets.stores.kafka import CommitTexts, commit_now, load_committed
from offsets.types import Checkpoint, OffsetRange, TopicPartition
from worker.configuration import Configuration
from worker.dead_letters.record import DeadLetter, read_letter
from worker.kafka.connection import KAFKA_SECONDS, ReadFault, at_times, bounds_of, connected, read_between


@contextlib.contextmanager
def open_topic(configuration: Configuration) -> Iterator[DeadLetterTopic]:
    """Open the dead-letter topic of a configuration.

    Raises ReadFault: none is configured, or Kafka cannot be reached."""
    if configuration.dead_letter is None:
        raise ReadFault("the configuration has no dead_letter.topic")
    topic = configuration.dead_letter.topic
    # A separate group without members, which only stores what was replayed.
    consumer, admin = connected(configuration, group=f"{configuration.kafka.group_id}.dead-letters")
    with closed_in_time(consumer):
        yield DeadLetterTopic(topic, consumer, _id_of(topic, admin))


def _id_of(topic: str, admin: AdminClient) -> str | None:
    try:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=KAFKA_SECONDS)
        found = asked[topic].result(KAFKA_SECONDS).topic_id
    except (KafkaException, TimeoutError):
        return None  # it does not exist yet, or the account may not see it
    return None if found is None else str(found)


class DeadLetterTopic:
    """Made by `open_topic`. All methods raise ReadFault if a request to Kafka fails."""

    def __init__(self, topic: str, consumer: Consumer, topic_id: str | None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        """Kafka's id of the topic, as text; None if the brokers do not report it."""
        self._consumer = consumer
        self._bounds = bounds_of(consumer, topic)  # none before the first letter
        self._replayed = self._load()

    def read(self, since: datetime | None = None) -> Iterator[DeadLetter]:
        """Yield all present letters, in order for each partition. `since`: by Kafka's time of a letter."""
        begins = {partition: first for partition, (first, end) in self._bounds.items() if first < end}
        if since is not None:
            found = at_times(self._consumer, dict.fromkeys(begins, since))
            begins = {
                place: max(offset, begins[place]) for place, offset in found.items() if offset is not None
            }
        yield from self._letters(begins)

    def read_new(self) -> Iterator[DeadLetter]:
        """The same as `read`, for letters that were not replayed."""
        return (letter for letter in self.read() if not self.is_replayed(letter))

    def get(self, partition: int, offset: int) -> DeadLetter:
        place = TopicPartition(self.topic, partition)
        if place not in self._bounds:
            raise ReadFault(f"topic {self.topic} has no partition {partition}")
        first, end = self._bounds[place]
        found = None
        if first <= offset < end:
            with contextlib.closing(self._letters({place: offset})) as letters:
                found = next(letters, None)
        if found is None or found.offset != offset:
            raise ReadFault(f"{place} has no record at offset {offset}: it has {first} to {end - 1}")
        return found

    def is_replayed(self, letter: DeadLetter) -> bool:
        """Whether `remember` was called with it, now or in an earlier run."""
        known = self._replayed.get(letter.place)
        if known is None:
            return False
        ahead = any(first <= letter.offset < end for first, end in known.ahead)
        return letter.offset < known.offset or ahead

    def remember(self, letter: DeadLetter) -> None:
        """Mark it as replayed. `save` makes this durable."""
        known = self._replayed.get(letter.place)
        if known is None:
            known = Checkpoint(self._bounds[letter.place][0])
        self._replayed[letter.place] = with_offset(known, letter.offset)

    def save(self, places: Iterable[TopicPartition]) -> None:
        """Store the replayed letters of these partitions in Kafka."""
        checkpoints = {place: self._replayed[place] for place in places if place in self._replayed}
        if not checkpoints:
            return
        try:
            commit_now(self._consumer, checkpoints, CommitTexts())
        except CheckpointError as error:
            raise ReadFault(f"cannot record in Kafka which letters were replayed: {error}") from None

    def _load(self) -> dict[TopicPartition, Checkpoint]:
        try:
            known = load_committed(self._consumer, self._bounds, KAFKA_SECONDS)
        except CheckpointError as error:
            raise ReadFault(str(error)) from None
        return {place: each.checkpoint for place, each in known.items()}

    def _letters(self, begins: dict[TopicPartition, int]) -> Generator[DeadLetter]:
        ends = {place: self._bounds[place][1] for place in begins}
        try:
            for _, _, record in read_between(self._consumer, begins, ends):
                if record is not None:
                    yield read_letter(record)
        finally:
            self._consumer.unassign()


def with_offset(known: Checkpoint, offset: int) -> Checkpoint:
    """Return the checkpoint with one more finished offset.

    >>> with_offset(Checkpoint(3, (OffsetRange(5, 7),)), 8)[:2]
    (3, (OffsetRange(first=5, end=7), OffsetRange(first=8, end=9)))
    >>> with_offset(Checkpoint(3, (OffsetRange(4, 5),)), 3)[:2]
    (5, ())
    """
    (_, reached), *ahead = covered(known.offset, known.ahead, [OffsetRange(offset, offset + 1)])
    return Checkpoint(reached, tuple(ahead))
