"""`binlane checkpoint`: where a worker stands, and moving it while it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offsets.stores import CheckpointError
from offsets.types import OffsetRange, TopicPartition
from worker.configuration import Configuration, load
from worker.observing import logs
from worker.partitions.stored_positions import Position, PositionError, connect

__all__ = ["move", "show"]

_WIDTH_WITHOUT_TERMINAL = 160


def show(config: Path, as_json: bool = False) -> int:
    """Print every store's position for each partition, and where a start would begin and why.

    Returns 0, or 1 when a store cannot be read.

    Raises:
        ConfigurationError: the configuration cannot be used.
    """
    configuration = _configuration(config)
    clean = configuration.secrets.redact
    try:
        with connect(configuration) as cluster:
            positions = cluster.positions()
            warnings = [f"no topic matches {pattern} of kafka.topics" for pattern in cluster.missing()]
            warnings += cluster.file.warnings
            file = cluster.file.path
    except (CheckpointError, PositionError) as error:
        return _failed(clean(str(error)))
    if as_json:
        shown = _as_json(configuration, file, positions, warnings)
        print(clean(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()))
        return 0
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    console.print(Text(clean(f"group {configuration.kafka.group_id}, local file {file}")))
    for warning in warnings:
        console.print(Text(clean(f"warning: {warning}"), style="yellow"))
    if positions:
        console.print(_table(positions))
    return 0


def move(
    config: Path,
    topic: str,
    partition: int,
    offset: int | None = None,
    time: datetime | None = None,
) -> int:
    """Move a stopped worker's position in Kafka and in the local file.

    To `offset`, the next to read; or to the first record that Kafka got at or after `time`.

    Returns 0; 1 when the group is active or a store cannot be written; 2 unless either `offset` or `time` is
    given.

    Raises:
        ConfigurationError: the configuration cannot be used.
    """
    if (offset is None) == (time is None):
        _complain("give either --offset or --time")
        return 2
    configuration = _configuration(config)
    clean = configuration.secrets.redact
    place = TopicPartition(topic, partition)
    try:
        with connect(configuration) as cluster:
            beginning, end = cluster.bounds(place)
            cluster.refuse_active_group(place)
            how = ""
            if time is not None:
                found = cluster.at_time(place, time)
                offset = end if found is None else found
                how = _by_time(time, found)
            assert offset is not None  # one of both was given
            if not beginning <= offset <= end:
                return _failed(f"{place} has offsets {beginning} to {end}, found {offset}; nothing was moved")
            cluster.move(place, offset)
            print(clean(f"{place} stands at {offset} now, in Kafka and in {cluster.file.path}{how}"))
    except (CheckpointError, PositionError) as error:
        return _failed(clean(str(error)))
    return 0


def _configuration(config: Path) -> Configuration:
    # Moving a position runs no handler: their modules need not be here.
    configuration = load(config, check_handlers=False)
    logs.configure(
        configuration.logging.level, configuration.logging.format, redact=configuration.secrets.redact
    )
    return configuration


def _by_time(time: datetime, found: int | None) -> str:
    moment = time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if found is None:
        return f": no record has a Kafka timestamp at or after {moment}, so this is the end"
    return f": the first record with a Kafka timestamp (not the source's time) at or after {moment}"


def _table(positions: Sequence[Position]) -> Table:
    table = Table()
    for heading in ("partition", "in Kafka", "local file", "committed", "a start begins at", "why"):
        table.add_column(heading, overflow="fold")
    for each in positions:
        file = "-"
        if each.file is not None:
            known = "no" if each.file.acknowledged is None else str(each.file.acknowledged.offset)
            file = f"{each.file.offset}{_ahead(each.file.ahead)}\nacknowledged: {known}"
        kafka = "-" if each.kafka is None else f"{each.kafka.offset}{_ahead(each.kafka.ahead)}"
        why = each.start.reason if each.lost is None else f"{each.start.reason}. {each.lost}"
        table.add_row(
            Text(str(each.partition)),
            f"{each.beginning} to {each.end}",
            file,
            kafka,
            f"{each.begins_at}{_ahead(each.start.ahead)}\n({each.start.source})",
            Text(why),
        )
    return table


def _ahead(ranges: Sequence[OffsetRange]) -> str:
    return f"\n+{_count(ranges)} ahead" if ranges else ""


def _count(ranges: Sequence[OffsetRange]) -> int:
    return sum(end - first for first, end in ranges)


def _as_json(
    configuration: Configuration, file: Path, positions: Sequence[Position], warnings: Sequence[str]
) -> dict[str, Any]:
    return {
        "group": configuration.kafka.group_id,
        "file": str(file),
        "warnings": list(warnings),
        "partitions": [_partition(each) for each in positions],
    }


def _partition(each: Position) -> dict[str, Any]:
    file = kafka = None
    if each.file is not None:
        mark = each.file.acknowledged
        file = {**_store(each.file.offset, each.file.ahead), "acknowledged": mark and mark.offset}
        file["topic_id"] = each.file.topic_id
    if each.kafka is not None:
        kafka = {**_store(each.kafka.offset, each.kafka.ahead), "topic_id": each.kafka.topic_id}
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "topic_id": each.topic_id,
        "beginning": each.beginning,
        "end": each.end,
        "stores": {"file": file, "kafka": kafka},
        "start": {
            **_store(each.begins_at, each.start.ahead),
            "place": each.start.offset,
            "source": each.start.source,
            "reason": each.start.reason,
            "lost": each.lost,
        },
    }


def _store(offset: int, ahead: Sequence[OffsetRange]) -> dict[str, Any]:
    return {"offset": offset, "finished_ahead": _count(ahead), "ahead": ahead}


def _failed(message: str) -> int:
    _complain(message)
    return 1


def _complain(message: str) -> None:
    print(f"binlane checkpoint: {' '.join(message.split())}", file=sys.stderr)
