"""Reading the dead-letter topic from commands, and storing which of its letters were replayed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator
from datetime import datetime
from typing import cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import SILENT, closed_in_time
from offsets.finished.reading import covered
from offsets.stores.interface import CheckpointError
from offsets.stores.kafka import CommitTexts, commit_now, load_committed, text_of
from offsets.types import Checkpoint, OffsetRange, TopicPartition
from worker.configuration import Configuration
from worker.configuration.kafka_properties import admin_settings, consumer_settings
from worker.dead_letters.record import DeadLetter, read_letter
from worker.formats.interface import Record
from worker.kafka.connection import reach_kafka

_SECONDS = 10.0
_POLL_RECORDS, _POLL_SECONDS = 500, 0.2


class DeadLetterError(Exception):
    """One sentence for people: what cannot be read or stored, and why."""


@contextlib.contextmanager
def open_topic(configuration: Configuration) -> Iterator[DeadLetterTopic]:
    """Open the dead-letter topic of a configuration.

    Raises DeadLetterError: none is configured, or Kafka cannot be reached."""
    if configuration.dead_letter is None:
        raise DeadLetterError("the configuration has no dead_letter.topic")
    reached = reach_kafka(configuration, _SECONDS)[0]
    if reached.error is not None:
        raise DeadLetterError(f"{reached.target}: {reached.error}")
    settings = consumer_settings(configuration.kafka)
    settings.pop("group.instance.id", None)
    # A separate group without members, which only stores what was replayed.
    settings["group.id"] = f"{configuration.kafka.group_id}.dead-letters"
    topic = configuration.dead_letter.topic
    topic_id = _id_of(topic, AdminClient(admin_settings(configuration.kafka), logger=SILENT))
    with closed_in_time(Consumer(settings, logger=SILENT)) as consumer:
        yield DeadLetterTopic(topic, consumer, topic_id)


def _id_of(topic: str, admin: AdminClient) -> str | None:
    try:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=_SECONDS)
        found = asked[topic].result(_SECONDS).topic_id
    except (KafkaException, TimeoutError):
        return None  # it does not exist yet, or the account may not see it
    return None if found is None else str(found)


class DeadLetterTopic:
    """Made by `open_topic`. All methods raise DeadLetterError if a request to Kafka fails."""

    def __init__(self, topic: str, consumer: Consumer, topic_id: str | None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        """Kafka's id of the topic, as text; None if the brokers do not report it."""
        self._consumer = consumer
        self._bounds = self._look()
        self._replayed = self._load()

    def read(self, since: datetime | None = None) -> Iterator[DeadLetter]:
        """Yield all present letters, in order for each partition. `since`: by Kafka's time of a letter."""
        begins = {partition: first for partition, (first, end) in self._bounds.items() if first < end}
        if since is not None:
            begins = self._at(since, begins)
        yield from self._letters(begins)

    def read_new(self) -> Iterator[DeadLetter]:
        """The same as `read`, for letters that were not replayed."""
        return (letter for letter in self.read() if not self.is_replayed(letter))

    def get(self, partition: int, offset: int) -> DeadLetter:
        place = TopicPartition(self.topic, partition)
        if place not in self._bounds:
            raise DeadLetterError(f"topic {self.topic} has no partition {partition}")
        first, end = self._bounds[place]
        found = None
        if first <= offset < end:
            with contextlib.closing(self._letters({place: offset})) as letters:
                found = next(letters, None)
        if found is None or found.offset != offset:
            raise DeadLetterError(f"{place} has no record at offset {offset}: it has {first} to {end - 1}")
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
            raise DeadLetterError(f"cannot record in Kafka which letters were replayed: {error}") from None

    def _look(self) -> dict[TopicPartition, tuple[int, int]]:
        try:
            found = self._consumer.list_topics(self.topic, timeout=_SECONDS).topics[self.topic]
            if found.error is not None:
                if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return {}  # it is made with the first letter
                raise DeadLetterError(f"topic {self.topic}: {found.error.str()}")
            bounds = {}
            for number in sorted(found.partitions):
                asked = confluent_kafka.TopicPartition(self.topic, number)
                bound = self._consumer.get_watermark_offsets(asked, timeout=_SECONDS)
                bounds[TopicPartition(self.topic, number)] = bound
        except KafkaException as error:
            raise DeadLetterError(f"topic {self.topic}: {text_of(error)}") from None
        return bounds

    def _load(self) -> dict[TopicPartition, Checkpoint]:
        try:
            known = load_committed(self._consumer, self._bounds, _SECONDS)
        except CheckpointError as error:
            raise DeadLetterError(str(error)) from None
        return {place: each.checkpoint for place, each in known.items()}

    def _at(self, since: datetime, begins: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        asked = [confluent_kafka.TopicPartition(*place, int(since.timestamp() * 1000)) for place in begins]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=_SECONDS) if asked else []
        except KafkaException as error:
            raise DeadLetterError(f"cannot look up {since.isoformat()}: {text_of(error)}") from None
        places = {TopicPartition(each.topic, each.partition): each.offset for each in found}
        # A negative offset: no record is that new.
        return {
            place: max(offset, begins[place])
            for place, offset in places.items()
            if 0 <= offset < self._bounds[place][1]
        }

    def _letters(self, begins: dict[TopicPartition, int]) -> Generator[DeadLetter]:
        left = {place: self._bounds[place][1] for place in begins}
        if not left:
            return
        starts = [confluent_kafka.TopicPartition(*place, offset) for place, offset in begins.items()]
        self._consumer.assign(starts)
        last = time.monotonic()
        try:
            while left:
                for message in self._consumer.consume(_POLL_RECORDS, _POLL_SECONDS):
                    last = time.monotonic()
                    letter = self._letter(message, left)
                    if letter is not None:
                        yield letter
                if time.monotonic() - last > _SECONDS:
                    raise DeadLetterError(f"no answer from Kafka within {_SECONDS:g} s")
        finally:
            self._consumer.unassign()

    def _letter(self, message: confluent_kafka.Message, left: dict[TopicPartition, int]) -> DeadLetter | None:
        """Read a message. Removes its partition from `left` (place -> end) once that has been read."""
        place = TopicPartition(cast(str, message.topic()), cast(int, message.partition()))
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                left.pop(place, None)
                return None
            raise DeadLetterError(f"cannot read {place}: {error.str()}")
        offset = cast(int, message.offset())
        if place not in left or offset >= left[place]:
            left.pop(place, None)
            return None
        if offset + 1 >= left[place]:
            del left[place]
        return read_letter(cast(Record, message))


def with_offset(known: Checkpoint, offset: int) -> Checkpoint:
    """Return the checkpoint with one more finished offset.

    >>> with_offset(Checkpoint(3, (OffsetRange(5, 7),)), 8)[:2]
    (3, (OffsetRange(first=5, end=7), OffsetRange(first=8, end=9)))
    >>> with_offset(Checkpoint(3, (OffsetRange(4, 5),)), 3)[:2]
    (5, ())
    """
    (_, reached), *ahead = covered(known.offset, known.ahead, [OffsetRange(offset, offset + 1)])
    return Checkpoint(reached, tuple(ahead))
