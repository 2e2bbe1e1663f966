"""Commits through a consumer that another thread polls: which answer is to which commit."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer
from integration.process import eventually

from offsets.stores.interface import CheckpointError
from offsets.stores.polled import CommitInterrupted, PolledKafkaStore
from offsets.types import Checkpoint, Mark, OffsetRange, TopicPartition

SHOP = TopicPartition("cdc.shop", 0)


class Keeping(Consumer):
    """Keeps what is to be committed to itself: the test answers."""

    def __init__(self) -> None:
        super().__init__({"group.id": "replica"})
        self.sent: list[list[confluent_kafka.TopicPartition]] = []

    def commit(self, *_: Any, offsets: list[confluent_kafka.TopicPartition], **__: Any) -> Any:
        self.sent.append(offsets)


def test_the_late_answer_to_an_interrupted_commit_is_not_taken_for_that_to_a_newer_one() -> None:
    """Both commit the same offset; what is finished ahead differs."""
    store, consumer = PolledKafkaStore(deadline=20), Keeping()
    store.attach(consumer)

    def save(ahead: OffsetRange) -> Future[Any]:
        saving = others.submit(store.save, {SHOP: Checkpoint(5, (ahead,))})
        known = len(consumer.sent)

        def sent() -> bool:
            store.serve()
            return len(consumer.sent) > known

        eventually(sent)
        return saving

    with ThreadPoolExecutor(2) as others:
        first = save(OffsetRange(7, 8))
        store.interrupt()
        with pytest.raises(CommitInterrupted):
            first.result(10)
        second = save(OffsetRange(7, 9))
        store.answered(None, consumer.sent[0])
        with pytest.raises(TimeoutError):
            second.result(0.2)
        store.answered(None, consumer.sent[1])
        assert second.result(10)[SHOP].offset == 5
    consumer.close()


def test_only_a_commit_that_is_sent_is_told_as_one_that_kafka_may_hold() -> None:
    """A window of the map remembers the last few: others would push out the one that Kafka takes late."""
    told: list[Mark] = []
    store = PolledKafkaStore(deadline=20, sending=lambda marks: told.extend(marks.values()))
    consumer = Keeping()
    store.attach(consumer)
    with ThreadPoolExecutor(2) as others:
        unanswered = others.submit(store.save, {SHOP: Checkpoint(5)})

        def sent() -> bool:
            store.serve()
            return bool(consumer.sent)

        eventually(sent)
        sent_so_far = list(told)
        # On a thread that does not poll, as the committer's.
        with pytest.raises(CheckpointError, match="still under way"):
            others.submit(store.save, {SHOP: Checkpoint(6)}).result(20)
        store.interrupt()
        with pytest.raises(CommitInterrupted):
            unanswered.result(20)
        with pytest.raises(CommitInterrupted):
            others.submit(store.save, {SHOP: Checkpoint(7)}).result(20)
    assert [mark.offset for mark in sent_so_far] == [5]
    assert told == sent_so_far
    consumer.close()
