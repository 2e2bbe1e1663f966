"""`binlane checkpoint`: show a worker's positions, and move them while it is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from offsets.journal import Entry, JournalError, Unit
from offsets.stores.interface import CheckpointError, OwnStore
from offsets.types import OffsetRange, TopicPartition, count_of
from worker.commands.output import begin, table_with, wide_console
from worker.configuration import Configuration
from worker.kafka.connection import ReadFault
from worker.partitions.journaling import place_at, time_text
from worker.partitions.stored_positions import Position, connect


def show(config: Path, as_json: bool = False, history: int = 0) -> int:
    """Print every store's position for each partition, and where a start would begin and why.

    `history`: also print this many of the latest positions of each partition.

    Returns 0, or 1 if a store or the journal cannot be read. Raises ConfigurationError."""
    configuration, output = begin("checkpoint", config, check_handlers=False)
    try:
        with connect(configuration) as cluster:
            positions = cluster.positions()
            warnings = [f"no topic in Kafka matches {pattern}" for pattern in cluster.missing()]
            warnings += cluster.own.warnings
            own = cluster.own
            journal = cluster.journal if history else None
            places = [each.partition for each in positions]
            units = {} if journal is None else journal.history(places, history)
    except (CheckpointError, JournalError, ReadFault) as error:
        return output.failed(error)
    if as_json:
        shown = _as_json(configuration, own, positions, warnings)
        if history:
            for told, each in zip(shown["partitions"], positions, strict=True):
                told["history"] = [_unit(unit) for unit in units.get(each.partition, ())]
        output.json(shown)
        return 0
    console = wide_console()
    console.print(Text(output.clean(f"group {configuration.kafka.group_id}, {own.title} {own.place}")))
    for warning in warnings:
        console.print(Text(output.clean(f"warning: {warning}"), style="yellow"))
    if positions:
        console.print(_table(positions, own.title))
    if history:
        console.print(_history_table(units))
    return 0


def move(config: Path, topic: str, partition: int, to: int | datetime) -> int:
    """Move a stopped worker's position in Kafka and in its own store.

    `to`: the next offset to read, or a time of the source, whose start the journal finds, else Kafka.

    Returns 0; 1 if the group is active or a store cannot be written. Raises ConfigurationError."""
    configuration, output = begin("checkpoint", config, check_handlers=False)
    place = TopicPartition(topic, partition)
    try:
        with connect(configuration) as cluster:
            beginning, end = cluster.bounds(place)
            cluster.refuse_active_group(place)
            offset, how = (to, "") if isinstance(to, int) else place_at(cluster, place, to)
            if not beginning <= offset <= end:
                return output.failed(
                    f"{place} has offsets {beginning} to {end}, not {offset}; the position was not changed"
                )
            cluster.move(place, offset)
            where = f"{place} is now at {offset}, in Kafka and in {cluster.own.place}"
            print(output.clean(f"{where}: {how}" if how else where))
            if cluster.journal is not None:
                topic_id = cluster.topic_id(place.topic)
                cluster.journal.append([Entry(place, offset, None, topic_id, moved=True)])
    except JournalError as error:
        output.failed(f"the position was moved, but the journal could not record this: {error}")
    except (CheckpointError, ReadFault) as error:
        return output.failed(error)
    return 0


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "offset": unit.offset,
        "written": time_text(unit.written_ms),
        "source_time": None if unit.source_ms is None else time_text(unit.source_ms),
        "moved": unit.moved,
    }


def _history_table(units: Mapping[TopicPartition, Sequence[Unit]]) -> Table:
    headings = ("partition", "written", "next offset", "source time", "")
    table = table_with(headings, title="journal, newest first")
    for place, found in units.items():
        for each in map(_unit, found):
            moved = "set by a command" if each["moved"] else ""
            time = each["source_time"] or "-"
            table.add_row(Text(str(place)), each["written"], str(each["offset"]), time, moved)
    return table


def _table(positions: Sequence[Position], title: str) -> Table:
    table = table_with(("partition", "in Kafka", title, "committed", "next start", "why"))
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
    return f"\n+{count_of(ranges)} ahead" if ranges else ""


def _as_json(
    configuration: Configuration, own: OwnStore, positions: Sequence[Position], warnings: Sequence[str]
) -> dict[str, Any]:
    return {
        "group": configuration.kafka.group_id,
        own.name: own.place,
        "warnings": list(warnings),
        "partitions": [_partition(each, own.name) for each in positions],
    }


def _partition(each: Position, own: str) -> dict[str, Any]:
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
        "stores": {own: file, "kafka": kafka},
        "start": {
            **_store(each.begins_at, each.start.ahead),
            "place": each.start.offset,
            "source": each.start.source,
            "reason": each.start.reason,
            "lost": each.lost,
        },
    }


def _store(offset: int, ahead: Sequence[OffsetRange]) -> dict[str, Any]:
    return {"offset": offset, "finished_ahead": count_of(ahead), "ahead": ahead}
