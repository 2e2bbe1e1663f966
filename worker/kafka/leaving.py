"""Leaving the group where closing the consumer does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaException

from handlers.logs import get_logger

log = get_logger("kafka")

POLLS = 50
"""So many times the group is waited for, of which each takes a poll's time."""


def close_stays(settings: Mapping[str, str]) -> bool:
    """Whether a consumer with these settings has to `leave` before it is closed: librdkafka tells the group
    nothing when one with cooperative-sticky closes that has no partition, and its place is kept for
    `session.timeout.ms`. A static member is to keep its place."""
    return (
        settings.get("group.protocol", "classic") == "classic"
        and "cooperative" in settings.get("partition.assignment.strategy", "")
        and not settings.get("group.instance.id")
    )


def leave(consumer: Consumer, poll: Callable[[], object]) -> None:
    """Give back what is assigned, within `poll`, and leave the group: behind a rebalance that is under way.
    Says so where that does not end. On the thread that polls."""
    error = None
    try:
        consumer.unsubscribe()
        for _ in range(POLLS):
            if not consumer.memberid():  # as told last by the group; librdkafka forgets it when it leaves
                return
            poll()
    except KafkaException as raised:
        error = str(raised)
    log.warning(
        "group_not_left",
        error=error,
        hint="the group keeps this worker's place, and what was assigned to it, for session.timeout.ms",
    )
