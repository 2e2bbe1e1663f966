"""Delivery of messages to the brokers. The handler waits for the report of every message of a batch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Lock, Thread
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from handlers.kafka.librdkafka import client_logger

UNKNOWN_TOPIC = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
OF_THE_MESSAGE = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD}
)
"""The message is refused, not the topic: others may well be accepted."""

_POLL_SECONDS = 0.1
_FULL_SECONDS = 0.01
_GRACE_SECONDS = 5.0

Headers = list[tuple[str, str | bytes | None]]


class KafkaMessage(msgspec.Struct, frozen=True):
    key: bytes | None
    value: bytes | None
    headers: Headers


class Delivery:
    """The delivery results of one call's messages. The outbox's thread reports them."""

    def __init__(self, count: int) -> None:
        self._lock = Lock()  # guards `_open` and `errors`
        self._open = count
        self.errors: dict[int, KafkaError] = {}
        """Place of the message -> why it was not delivered."""
        self.reported = Event()
        if not count:
            self.reported.set()

    def report(self, place: int, error: KafkaError | None, _: Message | None = None) -> None:
        """Record that a message was delivered, or that it failed permanently."""
        with self._lock:
            if error is not None:
                self.errors[place] = error
            self._open -= 1
            if not self._open:
                self.reported.set()


class Outbox:
    """One idempotent producer for all threads, and the thread (named, owned here) that polls its reports.

    The next call replaces a producer with a fatal error. It also replaces one whose messages to a topic timed
    out twice in a row. (Once may be a slow start.) If a topic is recreated or a leader was unreachable,
    librdkafka may lose that partition's leader permanently, and still deliver to all others. See
    confluentinc/librdkafka issues 4898 and 5430."""

    def __init__(self, settings: dict[str, Any], timeout: float, name: str) -> None:
        self._settings = settings
        self._timeout = timeout
        self._name = name
        self._lock = Lock()  # guards the five below
        self._producer: Producer | None = None
        self._missing: set[str] = set()
        self._late: set[str] = set()
        """Topics whose last messages timed out."""
        self._thread: Thread | None = None
        self._trouble: KafkaError | None = None
        self._stopped = Event()

    def send(self, topic: str, messages: Sequence[KafkaMessage]) -> dict[int, KafkaError]:
        """Send messages in order, and wait until each is delivered or has failed permanently.

        Returns place -> error of the failed ones; none is in flight any more. Raises KafkaException if no
        producer can be created."""
        producer = self._running()
        self._look_again(producer, topic)
        delivery = Delivery(len(messages))
        for place, message in enumerate(messages):
            error = self._produce(producer, topic, message, partial(delivery.report, place))
            if error is not None:
                # No later message may be delivered before this one.
                for rest in range(place, len(messages)):
                    delivery.report(rest, error)
                break
        # librdkafka reports every message within message.timeout.ms.
        if not delivery.reported.wait(self._timeout + _GRACE_SECONDS):
            producer.purge()
            producer.flush(_GRACE_SECONDS)
        errors = delivery.errors.values()
        if any(error.fatal() for error in errors) or not delivery.reported.is_set():
            self._replace(producer, purge=True)
        elif self._late_again(any(error.code() == KafkaError._MSG_TIMED_OUT for error in errors), topic):
            self._replace(producer, purge=False)
        if not delivery.reported.is_set():
            return {0: KafkaError(KafkaError._TIMED_OUT, "librdkafka reports no delivery")}
        with self._lock:
            if not delivery.errors:
                self._trouble = None
            elif any(error.code() in UNKNOWN_TOPIC for error in delivery.errors.values()):
                self._missing.add(topic)
        return delivery.errors

    def trouble(self) -> str | None:
        """Return the client's last error about the brokers, unless messages were delivered since."""
        with self._lock:
            return None if self._trouble is None else str(self._trouble.str())

    def close(self) -> None:
        """Stop the thread and the producer. Messages in flight are dropped."""
        with self._lock:
            producer, self._producer = self._producer, None
            thread, self._thread = self._thread, None
        self._stopped.set()
        if thread is not None:
            thread.join()
        if producer is not None:
            producer.purge()
            producer.flush(_GRACE_SECONDS)

    def _look_again(self, producer: Producer, topic: str) -> None:
        """Refresh the metadata of a topic that was missing; librdkafka would not for minutes."""
        with self._lock:
            was_missing = topic in self._missing
            self._missing.discard(topic)
        if was_missing:
            with contextlib.suppress(KafkaException):  # sending reports the error
                producer.list_topics(topic, timeout=self._timeout)

    def _produce(
        self, producer: Producer, topic: str, message: KafkaMessage, report: Callable[..., None]
    ) -> KafkaError | None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                producer.produce(
                    topic, message.value, message.key, on_delivery=report, headers=message.headers
                )
            except BufferError:
                # The queue is full. The thread that polls reports makes room.
                if time.monotonic() > deadline:
                    return KafkaError(KafkaError._QUEUE_FULL)
                self._stopped.wait(_FULL_SECONDS)
            except KafkaException as error:
                refused: KafkaError = error.args[0]
                return refused
            else:
                return None

    def _running(self) -> Producer:
        with self._lock:
            if self._producer is None:
                settings = {**self._settings, "error_cb": self._on_error}
                self._producer = Producer(settings, logger=client_logger())
            if self._thread is None:
                self._stopped.clear()
                self._thread = Thread(target=self._run, name=f"{self._name}-delivery", daemon=True)
                self._thread.start()
            return self._producer

    def _late_again(self, late: bool, topic: str) -> bool:
        with self._lock:
            again = late and topic in self._late
            if late and not again:
                self._late.add(topic)
            else:
                self._late.discard(topic)
            return again

    def _replace(self, broken: Producer, *, purge: bool) -> None:
        with self._lock:
            if self._producer is broken:
                self._producer = None
        # Other callers still wait for their reports, and no thread polls this producer any more.
        if purge:
            broken.purge()
        broken.flush(_GRACE_SECONDS if purge else self._timeout + _GRACE_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                producer = self._producer
            if producer is None:
                self._stopped.wait(_POLL_SECONDS)
            else:
                producer.poll(_POLL_SECONDS)

    def _on_error(self, error: KafkaError) -> None:
        with self._lock:
            self._trouble = error
