"""The `kafka` handler: sends changes to topics chosen per table, with the primary key as the key."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

import msgspec
from confluent_kafka import KafkaError, KafkaException
from pydantic import Field, ValidationInfo, field_validator

from handlers.api import Batch, Change, Handler, HandlerContext, Rejected, TargetUnavailable
from handlers.failures import UnfitPlace, behind
from handlers.kafka.delivery import OF_THE_MESSAGE, UNKNOWN_TOPIC, KafkaMessage, Outbox
from handlers.kafka.librdkafka import (
    check_properties,
    client_logger,
    client_settings,
    cluster_metadata,
    producer_settings,
)
from handlers.logs import get_logger
from handlers.mysql.statement_of_change import shown
from handlers.options.shared import Options
from handlers.options.templates import Template, place_of
from handlers.options.values import PositiveDuration, PropertyValue, Servers, duration
from handlers.rows import is_move
from handlers.values.change_json import json_row, line

# https://kafka.apache.org/documentation/#topicconfigs names no rule; Kafka's own is in
# org.apache.kafka.common.internals.Topic.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LITERAL = re.compile(r"[a-zA-Z0-9._-]*")

_NO_RIGHT = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_DOWN = frozenset(
    (
        *(KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._FATAL, KafkaError._TRANSPORT),
        *(KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._SSL),
        *(KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE, KafkaError._QUEUE_FULL, KafkaError._RESOLVE),
        *(KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.INVALID_TIMESTAMP,  # caused by this machine's clock
        # Errors that the client retries itself, unless its property `retries` is small.
        *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.NETWORK_EXCEPTION),
        *(KafkaError.REQUEST_TIMED_OUT, KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE),
        *(KafkaError.KAFKA_STORAGE_ERROR, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    )
)
_CHECK_SECONDS = 10.0

log = get_logger("handlers.kafka")
_encode = msgspec.json.Encoder().encode


class Undelivered(Exception):
    """The brokers refused messages for a reason other than their content."""


class KafkaOptions(Options):
    """The keys of a `type: kafka` entry."""

    bootstrap_servers: Servers
    """The target's brokers: HOST:9092,HOST:9092."""
    topic: str = "replica.{database}.{table}"
    """The topic of a table; {database} and {table} are replaced."""
    value: Literal["change", "after"] = "change"
    """change: the whole change. after: the row after the change, a tombstone for a delete."""
    timeout: PositiveDuration = duration("10s")
    """The longest time until the brokers have a message."""
    properties: dict[str, PropertyValue] = Field(default={})
    """Any other librdkafka property (TLS, SASL, compression.type, batch.size ...)."""

    @field_validator("topic")
    @classmethod
    def _topic_is_usable(cls, topic: str) -> str:
        template = Template(topic, row=False)
        literals = [part for part in template.parts if isinstance(part, str)]
        wrong = sorted({letter for text in literals for letter in _LITERAL.sub("", text)})
        if wrong:
            raise ValueError(f"a topic cannot have {' '.join(wrong)}; allowed: letters, digits, . _ -")
        if not template.parts:
            raise ValueError("the name is empty")
        return topic

    @field_validator("properties")
    @classmethod
    def _properties_are_usable(cls, properties: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        check_properties(properties, info.data.get("timeout", 1.0))
        return properties


class KafkaHandler(Handler):
    """Sends a batch's messages in order. The batch is finished when the brokers have all of them."""

    options_model: ClassVar[type[KafkaOptions]] = KafkaOptions

    def __init__(self, **options: Any) -> None:
        self._options = KafkaOptions.model_validate(options)
        self._topic = Template(self._options.topic, row=False)
        self._outbox: Outbox | None = None
        self._log = log

    def open(self, context: HandlerContext) -> None:
        """Prepare the outbox, which connects on first use."""
        options = self._options
        settings = producer_settings(options.bootstrap_servers, options.properties, options.timeout)
        self._outbox = Outbox(settings, options.timeout, context.handler)
        self._log = log.bind(handler=context.handler)

    def handle(self, batch: Batch) -> None:
        """Raises Rejected, TargetUnavailable, UnfitPlace, Undelivered, or PartialFailure with one of them."""
        topic = self._topic.of_table(batch.database, batch.name)
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            told = f"{topic!r} is not a topic name (letters, digits, . _ -, at most 249); see option topic"
            raise _rejected(batch, 0, told)
        messages: list[KafkaMessage] = []
        places: list[int] = []
        traced = batch.is_traced
        for at, change in enumerate(batch.changes):
            try:
                message = self._message(batch, change, traced=traced)
            except (TypeError, ValueError) as error:
                raise _rejected(batch, at, error) from None
            if message is None:
                continue
            # `value: after` sends a moved row before its old key's tombstone: a refusal keeps the old row.
            is_moved = places[-1:] == [at - 1] and is_move(batch.changes[at - 1], change)
            is_first = is_moved and self._options.value == "after" and messages[-1].key != message.key
            place = len(messages) - is_first
            messages.insert(place, message)
            places.insert(place, at)
        self._deliver(batch, topic, messages, places)

    def close(self) -> None:
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None

    def check(self, context: HandlerContext) -> None:
        """List the brokers' topics; this creates none. Raises TargetUnavailable."""
        settings = client_settings(self._options.bootstrap_servers, self._options.properties)
        try:
            cluster_metadata(settings, min(self._options.timeout, _CHECK_SECONDS), client_logger())
        except KafkaException as error:
            told = error.args[0].str()
            raise TargetUnavailable(f"Kafka at {self._options.bootstrap_servers}: {told}") from None

    def _message(self, batch: Batch, change: Change, *, traced: bool) -> KafkaMessage | None:
        """Return a change's message, or None if it has none. `traced`: pass the record's trace on. Raises
        TypeError, ValueError."""
        row = change.after if change.after is not None else change.before
        key = None
        if row is not None and change.key_columns:
            missing = [column for column in change.key_columns if column not in row]
            if missing:
                raise ValueError(f"the row lacks {', '.join(missing)} of its primary key")
            key = _encode(json_row(change.key))
        headers: list[tuple[str, str | bytes | None]] = [
            ("source.topic", change.topic),
            ("source.partition", str(change.partition)),
            ("source.offset", str(change.offset)),
            ("source.index", str(change.index)),
            ("source.table", batch.table),
            ("op", change.op),
        ]
        if traced:
            headers += batch.trace_headers(change).items()
        if self._options.value == "change":
            return KafkaMessage(key, line(change, batch.database, batch.name)[:-1], headers)
        if row is None:
            self._log.warning("change_ignored", table=batch.table, op=change.op, sql=shown(change.sql))
            return None
        if change.after is not None:
            is_untold = change.lacks is None and not change.before_is_whole
            if is_untold and change.after.keys() <= set(change.key_columns or ()):
                return None  # it contains no values besides the key
            if change.lacks or is_untold:
                which = ", ".join(sorted(change.lacks or ())) or "all columns"
                raise ValueError(
                    f"the source does not send the row's value of {which}, and value: after cannot express "
                    "that: use value: change, or let the source send whole rows"
                )
            return KafkaMessage(key, _encode(json_row(change.after)), headers)
        if key is None:
            raise ValueError("the deleted row has no primary key for its tombstone; use value: change")
        return KafkaMessage(key, None, headers)

    def _deliver(self, batch: Batch, topic: str, messages: list[KafkaMessage], places: list[int]) -> None:
        assert self._outbox is not None, "handle needs open"
        errors = self._outbox.send(topic, messages)
        if not errors:
            return
        failed = min(errors)
        error: KafkaError | None = errors[failed]
        if errors[failed].code() in OF_THE_MESSAGE:
            # Brokers refuse whole sets of messages. Send them one by one to find the refused one.
            for single in range(failed, len(messages)):
                failed, error = single, self._outbox.send(topic, messages[single : single + 1]).get(0)
                if error is not None:
                    break
        if error is None:
            return
        at = places[failed]
        if error.code() in OF_THE_MESSAGE:
            raise behind(at, _rejected(batch, at, f"topic {topic} refuses it: {error.str()}"))
        raise behind(at, self._failure(topic, error))

    def _failure(self, topic: str, error: KafkaError) -> Exception:
        if error.code() in UNKNOWN_TOPIC:
            return UnfitPlace(f"topic {topic} does not exist, and the brokers do not create it: create it")
        if error.code() in _NO_RIGHT:
            return UnfitPlace(f"topic {topic}: {error.str()}: give the user the right to write to it")
        if error.code() in _DOWN or error.retriable() or error.fatal():
            trouble = self._outbox.trouble() if self._outbox is not None else None
            reason = f"{error.str()} ({trouble})" if trouble else error.str()
            return TargetUnavailable(f"Kafka at {self._options.bootstrap_servers}, topic {topic}: {reason}")
        return Undelivered(f"topic {topic}: {error.str()}")


def _rejected(batch: Batch, at: int, reason: object) -> Rejected:
    return Rejected(f"{place_of(batch.changes[at], batch.table)}: {reason}", at=at)
