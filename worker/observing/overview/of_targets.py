"""Report targets that are down, and what waits for them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from worker.observing.overview.trouble import DEAD_LETTERS, SCHEMAS, Trouble, names, place
from worker.observing.status import TableStatus, TargetStatus, WorkerStatus
from worker.observing.visible_text import duration

_NAMES = {DEAD_LETTERS: "The dead-letter topic", SCHEMAS: "The schema registry"}


def of_targets(status: WorkerStatus, waiting: list[TableStatus], config: str) -> Iterator[Trouble]:
    """`waiting`: tables that wait for a target; `config`: the configuration file, for the commands."""
    for target in status.targets:
        if target.up:
            continue
        waits, what = [each.table for each in waiting], "tables"
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
