"""What the consumer gives while the worker only stays in the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from building import assignment, record
from confluent_kafka import Consumer

from worker.fetching.polls import Polls


class Giving:
    """Stands for a consumer in whose calls partitions leave, which no broker does on demand."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None

    def consume(self, _: int, __: float) -> list[Any]:
        self.meanwhile()
        return [record(100, partition=0), record(7, partition=1)]


def test_records_of_a_partition_that_leaves_in_the_call_that_brings_them_are_not_kept() -> None:
    """Routed under a later assignment, they would pass for fetched, and what lies before them, too."""
    consumer, leaving = Giving(), assignment(0)
    polls = Polls(cast(Consumer, consumer), 100, 1000)
    polls.stay(0)
    consumer.meanwhile = lambda: polls.revoked([leaving])
    polls.stay(0)
    assert [[m.offset() for m in poll] for poll in polls.waiting] == [[7], [7]]
    consumer.meanwhile = lambda: None
    polls.stay(0)
    assert [m.offset() for m in polls.waiting[-1]] == [100, 7], "it came again"
