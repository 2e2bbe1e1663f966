"""A dead letter: the original record with headers that say where it came from and why it is here. Commands
read the dead-letter topic, and store which of its letters were replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, TopicCollection
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import closed_in_time
from offsets.finished.reading import covered
from offsets.stores.interface import CheckpointError
from offsets.stores.kafka import CommitTexts, commit_now, load_committed
from offsets.types import Checkpoint, OffsetRange, TopicPartition
from worker.configuration import Configuration
from worker.formats.interface import Record, any_headers
from worker.kafka.connection import KAFKA_SECONDS, ReadFault, at_times, bounds_of, connected, read_between

Header = tuple[str, bytes | None]

_PREFIX = "binlane."
_FIRST = "binlane.topic"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of a dead letter. Everything except the record's place may be unknown (None)."""

    place: TopicPartition
    """The partition of the letter itself."""
    offset: int
    topic: str | None
    """The record's source, with `partition` and `source_offset`."""
    partition: int | None
    source_offset: int | None
    index: int | None
    """The index of the failing change in the record. None: the whole record."""
    table: str | None
    handler: str | None
    """None: for all handlers of the table."""
    error: str | None
    attempts: int | None
    time: str | None
    """ISO 8601, UTC."""
    worker: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """The original headers."""
    timestamp: tuple[int, int]
    """The original record's: (kind, milliseconds since 1970), as in confluent_kafka."""

    @property
    def name(self) -> str:
        """`partition:offset`, as commands accept it."""
        return f"{self.place.partition}:{self.offset}"

    @property
    def stood_at(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the record; None if unknown."""
        if self.topic is None or self.partition is None or self.source_offset is None:
            return None
        return self.topic, self.partition, self.source_offset

    @property
    def about(self) -> tuple[object, ...]:
        """Equal for letters about the same failure. A crash between a letter and the next checkpoint causes a
        second letter."""
        if self.stood_at is None:
            return self.place, self.offset
        record = (self.stood_at, self.timestamp, self.key, self.value)
        return *record, self.index, self.table, self.handler, self.worker

    @property
    def source(self) -> str:
        """`topic[partition] offset n row i`, as in logs."""
        if self.stood_at is None:
            return "unknown"
        topic, partition, offset = self.stood_at
        row = "" if self.index is None else f" row {self.index}"
        return f"{topic}[{partition}] offset {offset}{row}"

    def original(self) -> Record:
        """Return the record as it was in its source topic, for its format."""
        made = Message(
            topic=self.place.topic if self.topic is None else self.topic,
            partition=self.partition or 0,
            offset=self.source_offset or 0,
            key=self.key,
            value=self.value,
            headers=cast(Any, list(self.headers) or None),
            timestamp=self.timestamp,
        )
        return cast(Record, made)


def headers_of(
    record: Record,
    *,
    table: str,
    handler: str | None,
    index: int | None,
    error: str,
    attempts: int,
    time: datetime,
    worker: str,
) -> list[Header]:
    """Return the record's own headers, then those of its letter."""
    kind, milliseconds = record.timestamp()
    own: list[tuple[str, Any]] = [
        (_FIRST, record.topic()),
        ("binlane.partition", record.partition()),
        ("binlane.offset", record.offset()),
        ("binlane.index", index),
        ("binlane.table", table),
        ("binlane.handler", handler),
        ("binlane.error", error),
        ("binlane.attempts", attempts),
        ("binlane.time", time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")),
        ("binlane.worker", worker),
        ("binlane.timestamp", f"{kind} {milliseconds}"),
    ]
    return [
        *(any_headers(record) or ()),
        *((name, str(value).encode("utf-8", "backslashreplace")) for name, value in own if value is not None),
    ]


def read_letter(record: Record) -> DeadLetter:
    """Read a record of the dead-letter topic. Missing or invalid headers become None."""
    headers = any_headers(record) or []
    # A letter that was sent again has two sets of them.
    begins = [place for place, (name, _) in enumerate(headers) if name == _FIRST]
    begin = begins[-1] if begins else len(headers)
    own = {
        name.removeprefix(_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in headers[begin:]
    }
    return DeadLetter(
        place=TopicPartition(record.topic(), record.partition()),
        offset=record.offset(),
        topic=own.get("topic"),
        partition=_number(own.get("partition"), 32),
        source_offset=_number(own.get("offset")),
        index=_number(own.get("index")),
        table=own.get("table"),
        handler=own.get("handler"),
        error=own.get("error"),
        attempts=_number(own.get("attempts")),
        time=own.get("time"),
        worker=own.get("worker"),
        key=record.key(),
        value=record.value(),
        headers=tuple(headers[:begin]),
        timestamp=_timestamp(own.get("timestamp")) or record.timestamp(),
    )


def _number(text: str | None, bits: int = 64) -> int | None:
    """Also None for numbers beyond Kafka's range."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    number = int(text)
    return number if number < 1 << (bits - 1) else None


def _timestamp(text: str | None) -> tuple[int, int] | None:
    numbers = (text or "").split()
    try:
        kind, milliseconds = map(int, numbers)
    except ValueError:
        return None
    return (kind, milliseconds) if max(abs(kind) << 32, abs(milliseconds)) < 1 << 63 else None


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
