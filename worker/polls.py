"""What the consumer gives, and what of it could not be routed yet."""

from __future__ import annotations

from collections import deque
from typing import cast

from confluent_kafka import Consumer, Message

from offsets.types import TopicPartition
from worker.poll_size import MOST_RECORDS, PollSize

__all__ = ["POLL_SECONDS", "Polls"]

POLL_SECONDS = 0.1
_FILL_SECONDS = 0.005
"""How long a poll waits for more once something came: fuller polls cost less for each record."""


class Polls:
    """The fetcher's own. A rebalance may come inside each call of the consumer."""

    def __init__(self, consumer: Consumer, max_records: int, max_bytes: int) -> None:
        self._consumer = consumer
        self.size = PollSize(max_records, max_bytes)
        self.waiting: deque[list[Message]] = deque()
        """To be routed before what comes next."""
        self._left: set[TopicPartition] = set()  # what left during the poll under way

    def next(self) -> list[Message]:
        """Waits for a first record, then a moment for more."""
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            return []
        if self.size.records == 1:
            return [first]
        self._left.clear()
        more = self._consumer.consume(self.size.records - 1, _FILL_SECONDS)
        return more if self._left and _place(first) in self._left else [first, *more]

    def stay(self, seconds: float) -> None:
        """In the group, that is: paused partitions give nothing but what was under way."""
        if late := self._consumer.consume(MOST_RECORDS, seconds):
            self.waiting.append(late)

    def leave(self, left: set[TopicPartition]) -> None:
        """A record fetched before must not count as fetched by a later assignment of its partition."""
        self._left |= left
        for poll in self.waiting:
            poll[:] = [m for m in poll if _place(m) not in left]

    @property
    def some_left(self) -> bool:
        """Whether partitions left during the last poll."""
        return bool(self._left)


def _place(message: Message) -> TopicPartition:
    return TopicPartition(cast(str, message.topic()), cast(int, message.partition()))
