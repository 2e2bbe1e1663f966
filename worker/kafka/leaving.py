"""Leave the group explicitly when closing the consumer does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaException

from handlers.logs import get_logger

log = get_logger("kafka")

POLLS = 50
"""The most polls that wait for the group."""


def close_stays(settings: Mapping[str, str]) -> bool:
    """Whether a consumer with these settings must `leave` before it is closed. With cooperative-sticky,
    librdkafka does not report the close of a consumer without partitions, so its place is kept for
    `session.timeout.ms`. A static member must keep its place."""
    return (
        settings.get("group.protocol", "classic") == "classic"
        and "cooperative" in settings.get("partition.assignment.strategy", "")
        and not settings.get("group.instance.id")
    )


def leave(consumer: Consumer, poll: Callable[[], object]) -> None:
    """Give up all partitions, calling `poll`, and leave the group once any running rebalance is over. Log a
    warning if that fails. Call it on the polling thread."""
    error = None
    try:
        consumer.unsubscribe()
        for _ in range(POLLS):
            if not consumer.memberid():  # the group's last answer; librdkafka clears it when it leaves
                return
            poll()
    except KafkaException as raised:
        error = str(raised)
    log.warning(
        "group_not_left",
        error=error,
        hint="the group keeps this worker's membership and partitions for session.timeout.ms",
    )
