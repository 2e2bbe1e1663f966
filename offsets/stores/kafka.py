"""Checkpoints as Kafka's own committed offsets, with finished ranges in the commits' metadata: their texts,
their identification, and brokers' errors."""

from __future__ import annotations

import secrets
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future

import confluent_kafka
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException

from offsets import metadata
from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint, Committed, Mark, TopicPartition

_log = structlog.get_logger(__name__)

# The broker appends all offsets of one request to __consumer_offsets as one batch. It rejects the request if
# the batch exceeds the topic's max.message.bytes (1,048,588 by default).
_MOST_METADATA = 700_000
_OWN_FIELDS = 150  # bytes of each offset in that batch besides the metadata: its key, timestamps, lengths
_LEAST_METADATA = 100  # characters; a topic's id would hardly fit into fewer


class MetadataTooLarge(CheckpointError):
    """The broker's `offset.metadata.max.bytes` is lower than the commit needs."""


class GroupMovedOn(CheckpointError):
    """The group has started its next assignment round. One of the worker's polls will report it."""


class TopicRefused(CheckpointError):
    """Kafka rejected the commit of a topic. librdkafka tells this of all its topics, although they count."""


_KINDS: Mapping[int, type[CheckpointError]] = {
    KafkaError.OFFSET_METADATA_TOO_LARGE: MetadataTooLarge,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: TopicRefused,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicRefused,
    KafkaError.REBALANCE_IN_PROGRESS: GroupMovedOn,
    KafkaError.ILLEGAL_GENERATION: GroupMovedOn,
    KafkaError.STALE_MEMBER_EPOCH: GroupMovedOn,
}


class CommitTexts:
    """Converts checkpoints to commits, with as much metadata as the brokers accept."""

    def __init__(self) -> None:
        self._limit = metadata.DEFAULT_LIMIT

    def offsets_of(
        self, checkpoints: Mapping[TopicPartition, Checkpoint]
    ) -> list[confluent_kafka.TopicPartition]:
        """Return the checkpoints as one commit. No other commit has the same metadata."""
        share = _MOST_METADATA // len(checkpoints) - _OWN_FIELDS
        limit = max(0, min(self._limit, share))
        offsets = []
        for (topic, partition), checkpoint in checkpoints.items():
            text = metadata.encode(checkpoint, secrets.randbits(32), limit)
            if text:
                each = confluent_kafka.TopicPartition(topic, partition, checkpoint.offset, text)
            else:  # an empty text would arrive as a zero byte
                each = confluent_kafka.TopicPartition(topic, partition, checkpoint.offset)
            offsets.append(each)
        return offsets

    def shrink(self, refused: Iterable[confluent_kafka.TopicPartition]) -> bool:
        """From now on, write half as much as in this commit, which was too large. False: it had no text."""
        longest = max((len(each.metadata or "") for each in refused), default=0)
        if not longest:
            return False
        self._limit = longest // 2 if longest // 2 >= _LEAST_METADATA else 0
        _log.warning(
            "commit_metadata_too_large",
            characters=longest,
            now_at_most=self._limit,
            hint="raise the brokers' offset.metadata.max.bytes (default 4096): finished ranges that do not "
            "fit are only in the local file",
        )
        return True


def commit_now(
    consumer: Consumer,
    checkpoints: Mapping[TopicPartition, Checkpoint],
    texts: CommitTexts,
    sending: Callable[[Mapping[TopicPartition, Mark]], None] = lambda marks: None,
) -> dict[TopicPartition, Mark]:
    """Commit all partitions at once, with less metadata if the broker accepts no more. Blocks until Kafka
    answers. Returns the commit's marks. `sending` is called with them first.

    Raises CheckpointError: Kafka rejected it."""
    while True:
        offsets = texts.offsets_of(checkpoints)
        sending(marks_of(offsets))
        try:
            failure = failure_of(consumer.commit(offsets=offsets, asynchronous=False))
        except KafkaException as error:
            # librdkafka does not report which partition it was.
            places = _listed([f"{each.topic}[{each.partition}]" for each in offsets], ", ")
            failure = refusal(error.args[0], f" of {places}")
        if failure is None:
            return marks_of(offsets)
        if not isinstance(failure, MetadataTooLarge) or not texts.shrink(offsets):
            raise failure


def marks_of(offsets: Iterable[confluent_kafka.TopicPartition]) -> dict[TopicPartition, Mark]:
    """Return the marks that identify this commit."""
    return {
        TopicPartition(each.topic, each.partition): _mark(each.offset, each.metadata or "")
        for each in offsets
    }


def committed_of(found: confluent_kafka.TopicPartition) -> Committed:
    """Convert Kafka's answer. Metadata that binlane did not write counts as nothing finished ahead."""
    try:
        text = found.metadata or ""
    except UnicodeDecodeError:  # another program's
        return Committed(Checkpoint(found.offset), Mark(found.offset, None))
    checkpoint = metadata.decode(text, found.offset) or Checkpoint(found.offset)
    return Committed(checkpoint, _mark(found.offset, text))


def _mark(offset: int, text: str) -> Mark:
    return Mark(offset, zlib.crc32(text.encode()))


def refusal(error: object, of: str = "") -> CheckpointError:
    """Return the error of a commit that Kafka rejects as a whole, with librdkafka's text."""
    told = error.str() if isinstance(error, KafkaError) else str(error)
    return _kind(error)(f"Kafka refused the commit{of}: {told}")


def failure_of(answers: Iterable[confluent_kafka.TopicPartition]) -> CheckpointError | None:
    """Return the error in Kafka's answer to a commit, if any."""
    refused = [(each, each.error) for each in answers if each.error is not None]
    if not refused:
        return None
    texts = [f"{each.topic}[{each.partition}]: {error.str()}" for each, error in refused]
    kinds = {_kind(error) for _, error in refused}
    # Less metadata fixes only its own error. The commit is then sent again, which shows the others.
    too_large = MetadataTooLarge in kinds
    kind = MetadataTooLarge if too_large else kinds.pop() if len(kinds) == 1 else CheckpointError
    return kind(f"Kafka refused the commit of {_listed(texts, '; ')}")


def _kind(error: object) -> type[CheckpointError]:
    return _KINDS.get(error.code(), CheckpointError) if isinstance(error, KafkaError) else CheckpointError


def _listed(texts: list[str], separator: str) -> str:
    """List the first three, and the number of the others."""
    more = f" and {len(texts) - 3} more partitions" if len(texts) > 3 else ""
    return separator.join(texts[:3]) + more


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
        """Replace the checkpoints of these partitions: one commit, with less metadata if the broker accepts
        no more. Returns the commit's marks.

        Raises CheckpointError: Kafka rejected it, or has not answered within the deadline. In the second case
        the request is still in progress. Until its answer arrives, every other save fails at once."""
        if not checkpoints:
            return {}
        answer: Future[dict[TopicPartition, Mark]] = Future()

        def commit() -> None:
            try:
                answer.set_result(commit_now(self._consumer, checkpoints, self._texts))
            except BaseException as error:
                answer.set_exception(error)

        with self._turn:
            self._refuse_second()
            # A daemon: a commit that never returns must not keep the process alive.
            self._thread = threading.Thread(target=commit, name="checkpoint-kafka", daemon=True)
            self._thread.start()
            self._thread.join(self._deadline)
        if not answer.done():
            raise CheckpointError(
                f"no answer from Kafka within {self._deadline:g} s; the commit is still under way"
            )
        return answer.result()

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
