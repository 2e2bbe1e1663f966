"""The Kafka store of a consumer that another thread polls.

confluent-kafka admits one thread at a time to a consumer, and a thread that polls without pauses leaves
hardly a gap. A commit from another thread would wait forever. So the polling thread sends the commits between
its polls (`serve`), and its polls return the answers (`answered`, the consumer's `on_commit`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from offsets.stores import kafka
from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint, Committed, Mark, TopicPartition


class CommitInterrupted(CheckpointError):
    """A rebalance interrupted the commit. This is no fault: the commit at the rebalance's end includes it."""


class _Request:
    """A commit in progress. `done` is set once, after `failure`."""

    def __init__(self, offsets: list[confluent_kafka.TopicPartition]) -> None:
        self.offsets = offsets
        self.sent: float | None = None
        """When it was sent, by the clock."""
        self.done = threading.Event()
        self.failure: CheckpointError | None = None

    def end(self, failure: CheckpointError | None = None) -> None:
        self.failure = failure
        self.done.set()


class PolledKafkaStore:
    """Commits through a consumer that its own thread polls. Set `answered` as its `on_commit`."""

    name = "kafka"

    def __init__(
        self,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        taken: Callable[[float], None] = lambda sent: None,
        sending: Callable[[Mapping[TopicPartition, Mark]], None] = lambda marks: None,
    ) -> None:
        """`deadline`: seconds that `save` may take. Loading may take half, because callers repeat it.
        `taken`: called with the time when an accepted commit was sent; Kafka accepts only members' commits.
        `sending`: called with a commit's marks just before it is sent, on the polling thread."""
        self._deadline = deadline
        self._clock = clock
        self._taken = taken
        self._sending = sending
        self._consumer: Consumer | None = None
        self._poller: int | None = None
        self._lock = threading.Lock()  # guards _request and _away
        self._request: _Request | None = None
        self._texts = kafka.CommitTexts()
        self._away = False  # the polling thread is in a rebalance callback and cannot serve

    def attach(self, consumer: Consumer) -> None:
        """Set the consumer to commit through. Called on the thread that polls it."""
        self._consumer = consumer
        self._poller = threading.get_ident()

    def load_committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See `kafka.load_committed`. Only on the polling thread."""
        return kafka.load_committed(self._attached(), partitions, self._deadline / 2)

    def save(self, checkpoints: Mapping[TopicPartition, Checkpoint]) -> dict[TopicPartition, Mark]:
        """Replace the checkpoints of these partitions: one commit, with less metadata if the broker accepts
        no more. Returns the commit's marks.

        On the polling thread (in a rebalance callback), it blocks until Kafka answers. On any other, it waits
        up to the deadline. Raises CommitInterrupted if a rebalance interrupts it."""
        if not checkpoints:
            return {}
        if threading.get_ident() == self._poller:
            begin = self._clock()
            marks = kafka.commit_now(self._attached(), checkpoints, self._texts, self._sending)
            self._taken(begin)
            return marks
        while True:
            offsets = self._texts.offsets_of(checkpoints)
            try:
                self._send(offsets)
                return kafka.marks_of(offsets)
            except kafka.MetadataTooLarge:
                if not self._texts.shrink(offsets):
                    raise

    def _send(self, offsets: list[confluent_kafka.TopicPartition]) -> None:
        request = _Request(offsets)
        with self._lock:
            if self._away:
                raise CommitInterrupted("a rebalance is under way")
            if self._request is not None:
                raise CheckpointError(
                    "an earlier commit to Kafka is still under way: the group's coordinator does not answer"
                )
            self._request = request
        if not request.done.wait(self._deadline):
            with self._lock:
                if request.sent is None:  # the polling thread is busy with a rebalance: take it back
                    self._request = None
            if not request.done.is_set():
                raise CheckpointError(f"no answer from Kafka within {self._deadline:g} s")
        if request.failure is not None:
            raise request.failure

    @property
    def under_way(self) -> bool:
        """Whether a commit waits to be sent, or for Kafka's answer, which a poll returns."""
        return self._request is not None

    def serve(self) -> None:
        """Send the waiting commit. On the polling thread, between polls."""
        with self._lock:
            self._away = False
            request = self._request
            if request is None or request.sent is not None:
                return
            request.sent = self._clock()
        try:
            # Not earlier: an unsent commit would displace one that Kafka may have from the few stored marks.
            self._sending(kafka.marks_of(request.offsets))
            self._attached().commit(offsets=request.offsets, asynchronous=True)
        except KafkaException as error:
            self._end(request, kafka.refusal(error.args[0]))
        except Exception as error:  # reported to the waiting thread; polling continues
            self._end(request, CheckpointError(f"the commit could not be sent: {error!r}"))

    def answered(self, error: KafkaError | None, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """The consumer's `on_commit`: on the polling thread, inside a poll."""
        request = self._request
        if request is None or request.sent is None or _places(partitions) != _places(request.offsets):
            return
        if error is None and any(each.error is None for each in partitions):
            self._taken(request.sent)  # each of the others has its own error
        self._end(
            request, kafka.failure_of(partitions) or (kafka.refusal(error) if error is not None else None)
        )

    def interrupt(self) -> None:
        """A rebalance callback starts: no answer can arrive until `serve`, so nobody may wait for one."""
        with self._lock:
            self._away = True
            request = self._request
        if request is not None:
            self._end(request, CommitInterrupted("a rebalance started before Kafka answered"))

    def close(self) -> None:
        """Nothing to release."""

    def _end(self, request: _Request, failure: CheckpointError | None) -> None:
        with self._lock:
            if self._request is request:
                self._request = None
        request.end(failure)

    def _attached(self) -> Consumer:
        if self._consumer is None:
            raise CheckpointError("the consumer has not been started")
        return self._consumer


def _places(partitions: Iterable[confluent_kafka.TopicPartition]) -> set[tuple[str, int, int, str | None]]:
    # The metadata is unique to this commit: an earlier one with the same offsets may be answered late.
    return {(each.topic, each.partition, each.offset, each.metadata) for each in partitions}
