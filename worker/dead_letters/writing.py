"""Writing dead letters: delivered before their record counts as finished, and limited in number."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import UTC, datetime
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from handlers.kafka.delivery import OF_THE_MESSAGE, UNKNOWN_TOPIC
from handlers.kafka.librdkafka import client_logger
from handlers.logs import get_logger
from worker.attempts.backoff import backoff
from worker.attempts.circuit import Circuit
from worker.attempts.steps import MustHalt, MustWait
from worker.configuration import DeadLetterRule, RetryRule
from worker.dead_letters.topic import Header, headers_of
from worker.formats.interface import Record
from worker.observing.metrics import Metrics

log = get_logger("dead_letters")

WINDOW = 1_000
"""Finished records over which `max_ratio` is counted."""
DEAD_LETTER_TARGET = "__dead_letter__"
"""The dead-letter topic among the targets of the status and of `binlane_target_up`."""

_WRITE_SECONDS = 10.0
"""The most seconds for one letter. librdkafka gives up after that."""
_POLL_SECONDS = 0.1
# librdkafka accepts nothing more with a broken producer. After a timeout it may also have lost a partition's
# leader permanently (confluentinc/librdkafka issues 4898 and 5430).
_OF_THE_PRODUCER = frozenset({KafkaError._FATAL, KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT})
_REFUSED_SECONDS = 5.0
"""Seconds until a letter that was rejected because of its content is retried."""
_RULE = RetryRule()


class Flood:
    """Counts how many of the last 1,000 finished records became dead letters. One thread at a time.

    Each letter is stored with the number of records that the worker had finished by then. It counts until
    1,000 more are finished. The window is never shorter, so a single early failure is no flood."""

    def __init__(self, max_ratio: float) -> None:
        self.allow(max_ratio)
        self._letters: list[int] = []

    def allow(self, max_ratio: float) -> None:
        # Rounded: 0.57 x 1,000 is 569.9999... in floating point.
        self._most = None if max_ratio >= 1 else int(round(max_ratio * WINDOW, 6))
        self.max_ratio = max_ratio

    def exceeds(self, finished: int) -> int | None:
        """Return the number of letters including one more, if that is too many."""
        self._letters = [each for each in self._letters if each > finished - WINDOW]
        count = len(self._letters) + 1
        return count if self._most is not None and count > self._most else None

    def note(self, finished: int) -> None:
        """Count a written letter."""
        self._letters.append(finished)


@dataclass(eq=False)
class DeadLetters:
    """The dead-letter topic for processors. Any thread. Letters are written one at a time.

    `settings`: the producer's. `producer`: makes one. `finished`: the number of records that the worker has
    finished so far. `back`: called when the topic accepts letters again."""

    rule: InitVar[DeadLetterRule]
    settings: dict[str, Any]
    _: KW_ONLY
    worker: str
    finished: Callable[[], int]
    redact: Callable[[str], str]
    metrics: Metrics
    back: Callable[[], None]
    random: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    producer: Callable[..., Any] = Producer

    def __post_init__(self, rule: DeadLetterRule) -> None:
        self.topic = rule.topic
        self.circuit = Circuit(self.clock)
        self.missing = False
        """Kafka last reported that the topic does not exist."""
        self._lock = threading.Lock()  # guards the producer, its last error, and the flood's count
        self._flood = Flood(rule.max_ratio)
        self._producer: Producer | None = None
        self._trouble: KafkaError | None = None

    def allow(self, max_ratio: float) -> None:
        """Allow another share of dead letters from now on."""
        with self._lock:
            self._flood.allow(max_ratio)

    def send(
        self,
        record: Record,
        *,
        table: str,
        handler: str | None,
        index: int | None,
        error: str,
        attempts: int,
        before: int = 0,
        ordered_by: str | None = None,
    ) -> str:
        """Write the record as a dead letter, and return its place once the brokers have it.

        `before`: records before it in its batch, which count as finished for `max_ratio`. `ordered_by`: the
        person who wants it written, regardless of `max_ratio`.

        Raises MustHalt: it would be one too many; MustWait: it cannot be written now."""
        if ordered_by is not None:
            error = f"{error} (set aside by {ordered_by})"
        self._give_way(self.circuit.waiting())  # during another's attempt, nobody waits for the lock
        headers = headers_of(
            record,
            table=table,
            handler=handler,
            index=index,
            error=self.redact(error),
            attempts=attempts,
            time=datetime.now(UTC),
            worker=self.worker,
        )
        with self._lock:
            # Checked under the lock: a thread that waited for it knows the result of the letter before.
            count = self.finished() + before
            letters = self._flood.exceeds(count)
            if letters is not None and ordered_by is None:
                raise MustHalt(
                    f"dead_letter.max_ratio {self._flood.max_ratio:g}: this would be dead letter number "
                    f"{letters} within the last {WINDOW:,} finished records; it was not written. It failed "
                    f"with {error}"
                )
            place = self._guarded(record, headers)
            if ordered_by is None:
                self._flood.note(count)
        self.metrics.count("binlane_dead_letters_total", table)
        log.error(
            "dead_letter",
            table=table,
            handler=handler,
            position=f"{record.topic()}[{record.partition()}] offset {record.offset()}"
            + ("" if index is None else f" row {index}"),
            error=error,
            attempts=attempts,
            written_to=place,
            **({} if ordered_by is None else {"ordered_by": ordered_by}),
        )
        return place

    def _give_way(self, wait: float) -> None:
        if wait > 0:
            down = self.circuit.down()
            raise MustWait(down.reason if down is not None else "writing failed until now", wait)

    def _guarded(self, record: Record, headers: list[Header]) -> str:
        turn, wait = self.circuit.admit()
        self._give_way(wait)
        fault: KafkaError | None = None
        try:
            message = self._write(record, headers)
        except _Failed as failed:
            fault = failed.error
            reason = f"the dead-letter topic {self.topic} cannot be written: {failed}"
        self.missing = fault is not None and fault.code() in UNKNOWN_TOPIC
        if fault is None or fault.code() in OF_THE_MESSAGE:
            down_seconds = self.circuit.answered(turn)
            if down_seconds is not None:
                log.info("dead_letters_possible_again", topic=self.topic, down_seconds=round(down_seconds, 1))
                self.back()
        if fault is None:
            return f"{message.topic()}[{message.partition()}] offset {message.offset()}"
        if fault.code() in OF_THE_MESSAGE:
            raise MustWait(f"{reason}. See max.message.bytes of the topic", _REFUSED_SECONDS)
        refusal = self.circuit.failed(turn, reason, lambda failures: backoff(_RULE, failures, self.random))
        if refusal.opened:
            log.error(
                "dead_letters_impossible",
                error=reason,
                hint="records that should become dead letters wait and are not finished; writing is retried",
            )
        raise MustWait(reason, refusal.wait)

    def _write(self, record: Record, headers: list[Header]) -> Message:
        """Send the letter and wait for the brokers' answer. Raises _Failed."""
        if self._producer is None:
            settings = {
                **self.settings,
                "message.timeout.ms": int(_WRITE_SECONDS * 1000),
                # Shorter, to report that the topic does not exist rather than a timeout.
                "topic.metadata.propagation.max.ms": int(_WRITE_SECONDS * 300),
            }
            try:
                self._producer = self.producer(settings, error_cb=self._on_error, logger=client_logger())
            except KafkaException as error:  # a file that it names is gone since the worker's start
                raise self._failed(error.args[0]) from None
        producer, self._trouble = self._producer, None
        outcome: list[tuple[KafkaError | None, Message]] = []
        try:
            producer.produce(
                self.topic,
                value=record.value(),
                key=record.key(),
                headers=cast(list[tuple[str, str | bytes | None]], headers),  # typing: lists are invariant
                on_delivery=lambda error, message: outcome.append((error, message)),
            )
        except KafkaException as error:
            raise self._failed(error.args[0]) from None
        end = self.clock() + 2 * _WRITE_SECONDS
        while not outcome:
            if self.clock() > end:
                self._producer = None
                raise self._failed(KafkaError(KafkaError._TIMED_OUT))
            producer.poll(_POLL_SECONDS)
        fault, message = outcome[0]
        if fault is not None:
            raise self._failed(fault)
        return message

    def _failed(self, error: KafkaError) -> _Failed:
        if error.fatal() or error.code() in _OF_THE_PRODUCER:
            self._producer = None
        why = self._trouble if error.code() == KafkaError._MSG_TIMED_OUT and self._trouble else error
        return _Failed(error, why.str())

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._trouble is None:
            self._trouble = error


class _Failed(Exception):
    def __init__(self, error: KafkaError, text: str) -> None:
        super().__init__(text)
        self.error = error
