"""Report problems of Kafka and of the targets, and what waits for them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from worker.observing.overview.trouble import DEAD_LETTERS, SCHEMAS, Trouble, names, place
from worker.observing.status import (
    KafkaFault,
    KafkaStatus,
    PartitionError,
    PartitionStatus,
    TableStatus,
    TargetStatus,
    WorkerStatus,
)
from worker.observing.visible_text import duration

_DO = {
    "UNKNOWN_TOPIC_OR_PART": "Correct its name in kafka.topics and restart. Or create the topic: the "
    "worker then reads it within minutes.",
    "TOPIC_AUTHORIZATION_FAILED": "Give the user the ACL Read on the topic. The worker then continues.",
}
"""Errors that stay until a person acts. Of all others, only Kafka's text is known."""
_GROUP = {
    "INCONSISTENT_GROUP_PROTOCOL": "Give all members of the group the same partition.assignment.strategy in "
    "kafka.properties. Restart those that differ.",
    "GROUP_AUTHORIZATION_FAILED": "Give the user the ACL Read on the group. The worker then continues.",
}
"""Errors that keep a worker out of its group."""
_LASTS_SECONDS = 60.0
_UNREADABLE = (
    "No record after this batch is read. If it is too large, raise receive.message.max.bytes in "
    "kafka.properties and restart. Otherwise skip the batch. See docs/runbooks.md, BinlanePartitionError."
)
_NAMES = {DEAD_LETTERS: "The dead-letter topic", SCHEMAS: "The schema registry"}


def of_kafka(status: WorkerStatus, config: str, worker: str) -> Iterator[Trouble]:
    """Yield problems with Kafka. `config` (its file) and `worker` (that file or a URL) are for commands."""
    kafka = status.kafka
    if kafka is None:
        return
    if kafka.up is False:
        general = [each.error for each in kafka.faults if each.topic is None]
        yield Trouble(
            level="bad",
            what="No Kafka broker can be reached",
            error=general[-1] if general else None,
            do="Check the brokers and the network. The worker then continues by itself.",
        )
    check = f"binlane check {shlex.quote(config)} --connect"
    yield from _of_topics(kafka, bool(status.partitions), check)
    if kafka.up is not False:
        if not status.partitions:
            yield from _of_group(kafka, check)
        for partition in status.partitions:
            if partition.error is not None and partition.error.seconds >= _LASTS_SECONDS:
                yield _of_partition(partition, partition.error, check, worker)
    for what in not_begun(status):
        yield Trouble(
            level="bad",
            what=what,
            error=status.checkpoint.last_error,
            do="Find out why commits fail. The worker continues when one succeeds.",
        )


def not_begun(status: WorkerStatus) -> list[str]:
    """List what waits for Kafka to accept a commit: all batches, or those of some partitions."""
    found = []
    if status.kafka is not None and status.kafka.unconfirmed_seconds >= 1:
        found.append(
            f"No batch starts: for {duration(status.kafka.unconfirmed_seconds)} the group's coordinator has "
            "accepted no commit of this worker, so its partitions may belong to another"
        )
    first = [each for each in status.partitions if each.first_commit_seconds >= 1]
    if first:
        waited = duration(max(each.first_commit_seconds for each in first))
        begin = "its start offset" if len(first) == 1 else "their start offsets"
        places = names([place(each) for each in first], "partitions")
        found.append(f"{places} not handled: for {waited} Kafka has accepted no commit of {begin}")
    return found


def _of_topics(kafka: KafkaStatus, reads: bool, command: str) -> Iterator[Trouble]:
    for fault in kafka.faults:
        if fault.topic is None or (reads and fault.code not in _DO):
            continue
        yield Trouble(
            # Kafka reports it once. If others are read, it may exist by now, or be another worker's.
            level="warn" if reads else "bad",
            what=_what(fault) + (f", as Kafka reported {duration(fault.seconds)} ago" if reads else ""),
            error=fault.error,
            do=_DO.get(fault.code, "Fix what the error names. The worker then continues by itself."),
            commands=[command],
        )


def _of_group(kafka: KafkaStatus, command: str) -> Iterator[Trouble]:
    for fault in kafka.faults:
        if fault.topic is None and fault.code in _GROUP:
            yield Trouble(
                level="bad",
                what=f"The group refuses this worker: {fault.code}",
                error=fault.error,
                do=_GROUP[fault.code],
                commands=[command],
            )


def _of_partition(each: PartitionStatus, error: PartitionError, check: str, worker: str) -> Trouble:
    what = f"{place(each)} has not been read for {duration(error.seconds)}"
    if not error.unreadable:
        return Trouble(
            level="bad",
            what=f"{what}: {error.code}",
            error=error.error,
            do=_DO.get(error.code, "Check the partition's leader. Reading then continues by itself."),
            commands=[check],
        )
    at = error.offset if error.offset is not None else each.position or 0
    return Trouble(
        level="bad",
        what=f"{what}: its batch at offset {at} cannot be read ({error.code})",
        error=error.error,
        do=_UNREADABLE,
        commands=[
            f"binlane unblock {shlex.quote(worker)} --topic {shlex.quote(each.topic)} "
            f"--partition {each.partition} --offset {at} --skip"
        ],
    )


def _what(fault: KafkaFault) -> str:
    if fault.code == "UNKNOWN_TOPIC_OR_PART":
        return f"Topic {fault.topic} does not exist"
    if fault.code == "TOPIC_AUTHORIZATION_FAILED":
        return f"The worker may not read topic {fault.topic}"
    return f"Topic {fault.topic} is not read"


def of_targets(status: WorkerStatus, waiting: list[TableStatus], config: str) -> Iterator[Trouble]:
    """`waiting`: tables that wait for a target; `config`: the configuration file, for the commands."""
    for target in status.targets:
        if target.up:
            continue
        others = [each for each in status.targets if each is not target]
        waits, what = [each.table for each in waiting if not waits_for(each, others)], "tables"
        if target.handler == SCHEMAS:
            what = "partitions"
            waits = [place(each) for each in status.partitions if each.paused_by == "schema_registry"]
        behind = f": {names(waits, what)} wait{'s' if len(waits) == 1 else ''}" if waits else ""
        check = f"binlane check {shlex.quote(config)} --connect"
        if target.missing_topic is not None:
            yield _missing(target, target.missing_topic, behind, check)
            continue
        name = _NAMES.get(target.handler, f"Target {target.handler}")
        yield Trouble(
            level="bad",
            what=f"{name} is down for {duration(target.down_seconds)}{behind}",
            error=target.error,
            do="Restore it. Everything that waits for it then continues by itself.",
            commands=[check],
        )


def waits_for(table: TableStatus, targets: Iterable[TargetStatus]) -> bool:
    """Whether the table's error names the handler of one of these."""
    return (table.error or "").endswith(tuple(f"(handler {each.handler})" for each in targets))


def _missing(target: TargetStatus, topic: str, behind: str, check: str) -> Trouble:
    return Trouble(
        level="bad",
        what=f"The dead-letter topic {topic} does not exist{behind}",
        error=target.error,
        do="Create it, with any number of partitions, or correct dead_letter.topic and restart. Everything "
        "that waits for it then continues by itself.",
        commands=[
            check,
            "kafka-topics.sh --bootstrap-server BROKER:9092 --create "
            f"--topic {shlex.quote(topic)} --partitions 1",
        ],
    )
