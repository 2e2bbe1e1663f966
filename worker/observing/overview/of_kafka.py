"""What Kafka keeps a worker from, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from worker.observing.overview.trouble import Trouble, plural
from worker.observing.status import KafkaFault, KafkaStatus, WorkerStatus
from worker.observing.visible_text import duration

__all__ = ["of_kafka", "unconfirmed"]

_DO = {
    "UNKNOWN_TOPIC_OR_PART": "Correct its name in kafka.topics and restart; or make the topic, and it is "
    "read by itself within minutes.",
    "TOPIC_AUTHORIZATION_FAILED": "Give the user the ACL Read on the topic; it goes on by itself.",
}
"""These stay until a person acts; of others no more is known than what Kafka says."""


def of_kafka(status: WorkerStatus, config: str = "CONFIG") -> Iterator[Trouble]:
    """`config`: the configuration's file, for the command."""
    kafka = status.kafka
    if kafka is None:
        return
    if kafka.up is False:
        general = [each.error for each in kafka.faults if each.topic is None]
        yield Trouble(
            level="bad",
            what="No broker of Kafka can be reached",
            error=general[-1] if general else None,
            do="Look at the brokers and the network; it goes on by itself.",
        )
    yield from _of_topics(kafka, bool(status.partitions), f"binlane check {shlex.quote(config)} --connect")
    if kafka.unconfirmed_seconds >= 1:
        yield Trouble(
            level="bad",
            what=unconfirmed(status, kafka.unconfirmed_seconds),
            error=status.checkpoint.last_error,
            do="See why commits fail; it goes on by itself.",
        )


def unconfirmed(status: WorkerStatus, seconds: float) -> str:
    """What waits for so long for a commit."""
    waited = duration(seconds)
    first = sum(each.paused_by == "first_commit" for each in status.partitions)
    if first:
        return (
            f"{plural(first, 'partition')} not handled: for {waited} Kafka has not taken the commit of where "
            "they begin"
        )
    return (
        f"No batch begins: for {waited} the group's coordinator has taken no commit of this worker, so its "
        "partitions may be another's"
    )


def _of_topics(kafka: KafkaStatus, reads: bool, command: str) -> Iterator[Trouble]:
    for fault in kafka.faults:
        if fault.topic is None or (reads and fault.code not in _DO):
            continue
        yield Trouble(
            # Kafka tells it once. Where others are read, the topic may have come since, and be another's.
            level="warn" if reads else "bad",
            what=_what(fault) + (f", as Kafka said {duration(fault.seconds)} ago" if reads else ""),
            error=fault.error,
            do=_DO.get(fault.code, "Mend what the error names; it goes on by itself."),
            commands=[command],
        )


def _what(fault: KafkaFault) -> str:
    if fault.code == "UNKNOWN_TOPIC_OR_PART":
        return f"Topic {fault.topic} does not exist"
    if fault.code == "TOPIC_AUTHORIZATION_FAILED":
        return f"The worker may not read topic {fault.topic}"
    return f"Topic {fault.topic} is not read"
