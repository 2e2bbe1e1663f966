"""How much the consumer is asked for, and what it gives while the worker only stays in the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from building import assignment, chunk, delivery, record, unit
from confluent_kafka import Consumer

from worker.fetching.polls import MOST_RECORDS, Polls, PollSize


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


@pytest.mark.parametrize(
    ("tables", "least", "most"), [(1, 256, 1_024), (10, 2_560, 10_240), (200, 32_000, 32_000)]
)
def test_full_polls_grow_until_each_table_has_enough_records(tables: int, least: int, most: int) -> None:
    """More would only leave the processor's cache before they are handled."""
    size = PollSize(10**9, 10**12)
    units = [unit(f"t{number}", lane=number % 16) for number in range(tables)]
    for start, rounds in ((500, 6), (MOST_RECORDS, 6 if tables < 200 else 0)):
        size.records = start
        for _ in range(rounds):
            each, partition = max(1, size.records // tables), assignment()
            routed = delivery(
                *(
                    (one, chunk(partition, [*map(record, range(number * each, (number + 1) * each))]))
                    for number, one in enumerate(units)
                )
            )
            size.adjust(routed, each * tables, full=True, fits=True)
        assert least <= size.records <= most
