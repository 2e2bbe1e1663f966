"""How spans are named and what they say: OpenTelemetry's conventions for messaging, as of 1.30."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.util.types import AttributeValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offsets.types import TopicPartition
    from worker.formats.interface import Record

Attributes = dict[str, AttributeValue]


def of_record(record: Record, table: str, group: str) -> Attributes:
    """Its key and its value are not told: they are data."""
    return {
        **_operation("process", "process", group),
        "messaging.destination.name": record.topic(),
        "messaging.destination.partition.id": str(record.partition()),
        "messaging.kafka.offset": record.offset(),
        "messaging.message.body.size": len(record),
        "binlane.table": table,
    }


def of_batch(partitions: Iterable[TopicPartition], records: int, table: str, group: str) -> Attributes:
    """A topic, or a partition, is told where there is only one."""
    attributes = {
        **_operation("process_batch", "process", group),
        "messaging.batch.message_count": records,
        "binlane.table": table,
    }
    numbers = {each.partition for each in partitions}
    topics = {each.topic for each in partitions}
    if len(topics) == 1:
        attributes["messaging.destination.name"] = topics.pop()
        if len(numbers) == 1:
            attributes["messaging.destination.partition.id"] = str(numbers.pop())
    return attributes


def of_commit(topic: str | None, group: str) -> Attributes:
    """`topic`: None where there are several."""
    attributes = _operation("commit", "settle", group)
    if topic is not None:
        attributes["messaging.destination.name"] = topic
    return attributes


def _operation(name: str, kind: str, group: str) -> Attributes:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.consumer.group.name": group,
    }
