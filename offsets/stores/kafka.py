"""Checkpoints as Kafka's own committed offsets, with what is finished ahead in the commit's metadata."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from offsets.stores.commits import (
    CommitTexts,
    MetadataTooLarge,
    committed_of,
    failure_of,
    listed,
    marks_of,
    refusal,
)
from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint, Committed, Mark, TopicPartition

__all__ = ["COORDINATOR_BUSY", "KafkaStore", "load_committed", "text_of"]

COORDINATOR_BUSY = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""A group's coordinator is starting or moving. librdkafka passes these on when nothing but time is needed."""
_AGAIN_SECONDS = 0.1


class _Commit:
    """One request under way. `done` is set once, after `failure`."""

    def __init__(self, offsets: list[confluent_kafka.TopicPartition]) -> None:
        self.offsets = offsets
        self.done = threading.Event()
        self.failure: CheckpointError | None = None

    @property
    def taken(self) -> dict[TopicPartition, int]:
        return {TopicPartition(each.topic, each.partition): each.offset for each in self.offsets}


class KafkaStore:
    """Commits through a consumer that nobody polls, on a thread of its own: a commit blocks while the group's
    coordinator is away. The consumer must outlive the store, and be used by nobody else while a commit may be
    under way: confluent-kafka lets one thread at a time into a consumer. A polled one has `PolledKafkaStore`.
    """

    name = "kafka"

    def __init__(self, consumer: Consumer, deadline: float) -> None:
        """`deadline`: seconds that `load` and `save` may take."""
        self._consumer = consumer
        self._deadline = deadline
        self._turn = threading.Lock()  # guards _stuck, _late and _closed; held while Kafka is asked
        self._stuck: _Commit | None = None
        self._late: dict[TopicPartition, int] = {}
        self._closed = False
        self._texts = CommitTexts()
        self._requests: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        # A daemon: a commit that never returns must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="checkpoint-kafka", daemon=True)
        self._thread.start()

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Checkpoint]:
        """As `CheckpointStore.load`; fails at once while a commit that was given up is still under way."""
        return {partition: each.checkpoint for partition, each in self.load_committed(partitions).items()}

    def load_committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """As `load`, with what tells each commit from any other."""
        with self._in_turn():
            return load_committed(self._consumer, partitions, self._deadline)

    def save(self, checkpoints: Mapping[TopicPartition, Checkpoint]) -> dict[TopicPartition, Mark]:
        """As `CheckpointStore.save`: one commit for all partitions, with less metadata if the broker takes no
        more. Returns what tells it from any other commit.

        Raises:
            CheckpointError: Kafka refused it, or has not answered within the deadline. Then the request is
                still under way: until its answer comes, every further save fails at once.
        """
        if not checkpoints:
            return {}
        while True:
            commit = _Commit(self._texts.offsets_of(checkpoints))
            try:
                self._send(commit)
                return marks_of(commit.offsets)
            except MetadataTooLarge:
                if not self._texts.shrink(commit.offsets):
                    raise

    def _send(self, commit: _Commit) -> None:
        deadline = time.monotonic() + self._deadline
        with self._in_turn():
            if self._closed:
                raise CheckpointError("the Kafka checkpoint store is closed")
            self._requests.put(commit)
            if not commit.done.wait(max(0.0, deadline - time.monotonic())):
                self._stuck = commit
                raise CheckpointError(
                    f"no answer from Kafka within {self._deadline:g} s; the commit is still under way"
                )
        if commit.failure is not None:
            raise commit.failure

    def take_late(self) -> dict[TopicPartition, int]:
        """The offsets that Kafka took after `save` had given up on them; each is told once.

        They are what Kafka holds now, so the local file should know them (`FileStore.acknowledge`).
        """
        with self._turn:
            self._collect_late()
            late, self._late = self._late, {}
            return late

    def close(self, timeout: float | None = None) -> None:
        """Take no more commits and wait for the one under way: `timeout` seconds, by default the deadline.

        The consumer must not be closed while `alive` is True.
        """
        with self._turn:
            if not self._closed:
                self._closed = True
                self._requests.put(None)
        self._thread.join(self._deadline if timeout is None else timeout)

    @property
    def alive(self) -> bool:
        """Whether the store's thread still uses the consumer."""
        return self._thread.is_alive()

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=self._deadline):
            raise CheckpointError(f"another request to Kafka has not ended within {self._deadline:g} s")
        try:
            self._collect_late()
            if self._stuck is not None:
                raise CheckpointError(
                    "an earlier commit to Kafka is still under way: the group's coordinator does not answer"
                )
            yield
        finally:
            self._turn.release()

    def _collect_late(self) -> None:
        if self._stuck is not None and self._stuck.done.is_set():
            if self._stuck.failure is None:
                self._late.update(self._stuck.taken)
            self._stuck = None

    def _run(self) -> None:
        while (commit := self._requests.get()) is not None:
            commit.failure = self._commit(commit.offsets)
            commit.done.set()

    def _commit(self, offsets: list[confluent_kafka.TopicPartition]) -> CheckpointError | None:
        """What went wrong, if anything."""
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # librdkafka does not say which of them it was.
            places = listed([f"{each.topic}[{each.partition}]" for each in offsets], ", ")
            return refusal(error.args[0], f" of {places}")
        except Exception as error:
            return CheckpointError(f"the commit could not be sent: {error}")
        return failure_of(answers)


def load_committed(
    consumer: Consumer, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, Committed]:
    """The group's committed offsets. Metadata that binlane did not write counts as nothing finished ahead.

    Raises:
        CheckpointError: Kafka did not tell within `deadline` seconds.
    """
    wanted = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
    if not wanted:
        return {}
    found = _committed(consumer, wanted, deadline)
    known: dict[TopicPartition, Committed] = {}
    for each in found:
        partition = TopicPartition(each.topic, each.partition)
        if each.error is not None:
            raise CheckpointError(
                f"cannot read the committed offset of {partition} from Kafka: {each.error.str()}"
            )
        if each.offset >= 0:
            known[partition] = committed_of(each)
    return known


def _committed(
    consumer: Consumer, wanted: list[confluent_kafka.TopicPartition], deadline: float
) -> list[confluent_kafka.TopicPartition]:
    end = time.monotonic() + deadline
    while True:
        try:
            return consumer.committed(wanted, timeout=max(end - time.monotonic(), _AGAIN_SECONDS))
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_BUSY or time.monotonic() >= end:
                raise CheckpointError(
                    f"cannot read the group's committed offsets from Kafka: {text_of(error)}; "
                    "see whether the brokers are up and the group may be read"
                ) from error
        time.sleep(_AGAIN_SECONDS)


def text_of(error: KafkaException) -> str:
    """librdkafka's words."""
    first = error.args[0]
    return str(first.str() if hasattr(first, "str") else first)
