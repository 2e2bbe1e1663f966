"""How much metadata a commit has when a broker takes less than binlane would write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from offsets.stores.kafka import CommitTexts, TopicRefused, commit_now
from offsets.types import Checkpoint, OffsetRange, TopicPartition

ORDERS = TopicPartition("cdc.shop", 0)
SCATTERED = {ORDERS: Checkpoint(0, tuple(OffsetRange(n, n + 1) for n in range(7, 70_000, 7)))}


def test_what_is_refused_is_written_with_half_as_much_until_there_is_none() -> None:
    texts = CommitTexts()
    (refused,) = texts.offsets_of(SCATTERED)
    lengths = [len(refused.metadata or "")]
    assert lengths[0] > 1000
    while texts.shrink([refused]):
        (refused,) = texts.offsets_of(SCATTERED)
        assert refused.offset == 0
        lengths.append(len(refused.metadata or ""))
        assert lengths[-1] <= lengths[-2] // 2
    assert lengths[-1] == 0
    assert len(lengths) > 3


class Broker:
    """Takes no commit of one topic, and of the others only commits with little metadata."""

    def __init__(self, denied: str) -> None:
        self.denied = denied

    def commit(self, *, offsets: list[confluent_kafka.TopicPartition], **_: Any) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(
                topic=each.topic,
                partition=each.partition,
                offset=each.offset,
                metadata=each.metadata,
                error=self.refusal(each),
            )
            for each in offsets
        ]

    def refusal(self, offset: confluent_kafka.TopicPartition) -> KafkaError | None:
        if offset.topic == self.denied:
            return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE) if len(offset.metadata or "") > 1000 else None


def test_metadata_is_halved_though_another_partition_is_refused() -> None:
    """Else Kafka takes no commit of the first one while the other is refused."""
    denied = TopicPartition("cdc.denied", 0)
    broker = cast(Any, Broker(denied.topic))
    with pytest.raises(TopicRefused, match=r"of cdc\.denied\[0\]: [^;]+$"):
        commit_now(broker, {**SCATTERED, denied: Checkpoint(5)}, CommitTexts())
