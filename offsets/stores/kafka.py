"""Checkpoints as Kafka's own committed offsets, with finished ranges in the commits' metadata."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Mapping

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from offsets.stores.commits import CommitTexts, commit_now, committed_of
from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint, Committed, Mark, TopicPartition

COORDINATOR_BUSY = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""A group's coordinator is starting or moving. librdkafka passes these errors on, but only time is needed."""
_AGAIN_SECONDS = 0.1


class KafkaStore:
    """Commits through a consumer that nobody polls. A separate thread commits, because a commit blocks while
    the group's coordinator is away. confluent-kafka admits one thread at a time to a consumer. So nobody else
    may use it while the store is `alive`. For a polled consumer, use `PolledKafkaStore`."""

    name = "kafka"

    def __init__(self, consumer: Consumer, deadline: float) -> None:
        """`deadline`: seconds that `load_committed` and `save` may take."""
        self._consumer = consumer
        self._deadline = deadline
        self._texts = CommitTexts()
        self._turn = threading.Lock()  # held during a request to Kafka
        self._thread = threading.Thread()  # of the last commit

    def load_committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See the function `load_committed`. Fails at once while an abandoned commit still runs."""
        with self._turn:
            self._refuse_second()
            return load_committed(self._consumer, partitions, self._deadline)

    def save(self, checkpoints: Mapping[TopicPartition, Checkpoint]) -> dict[TopicPartition, Mark]:
        """The same as `CheckpointStore.save`: one commit for all partitions, with less metadata if the broker
        accepts no more. Returns the commit's marks.

        Raises CheckpointError: Kafka rejected it, or has not answered within the deadline. In the second case
        the request is still in progress. Until its answer arrives, every other save fails at once."""
        if not checkpoints:
            return {}
        answers: queue.SimpleQueue[dict[TopicPartition, Mark] | BaseException] = queue.SimpleQueue()

        def commit() -> None:
            try:
                answers.put(commit_now(self._consumer, checkpoints, self._texts))
            except BaseException as error:
                answers.put(error)

        with self._turn:
            self._refuse_second()
            # A daemon: a commit that never returns must not keep the process alive.
            self._thread = threading.Thread(target=commit, name="checkpoint-kafka", daemon=True)
            self._thread.start()
            self._thread.join(self._deadline)
        if answers.empty():
            raise CheckpointError(
                f"no answer from Kafka within {self._deadline:g} s; the commit is still under way"
            )
        answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """Wait for a commit in progress, up to the deadline."""
        if self.alive:
            self._thread.join(self._deadline)

    @property
    def alive(self) -> bool:
        """Whether a commit still uses the consumer."""
        return self._thread.is_alive()

    def _refuse_second(self) -> None:
        if self.alive:
            raise CheckpointError(
                "an earlier commit to Kafka is still under way: the group's coordinator does not answer"
            )


def load_committed(
    consumer: Consumer, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, Committed]:
    """Return the group's committed offsets. Metadata that binlane did not write counts as nothing ahead.

    Raises CheckpointError: Kafka did not answer within `deadline` seconds."""
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
                    f"cannot read the group's committed offsets from Kafka: {text_of(error)}; check that the "
                    "brokers are up and that the user may read the group"
                ) from error
        time.sleep(_AGAIN_SECONDS)


def text_of(error: KafkaException) -> str:
    first = error.args[0]
    return str(first.str() if hasattr(first, "str") else first)
