"""Where a start begins: one rule, and a sentence that says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from offsets.stores.file_format import FileEntry
from offsets.types import Checkpoint, OffsetRange, TopicPartition

__all__ = ["Initial", "Place", "Source", "Start", "choose_start"]

Initial = Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]]
"""`checkpoint.initial`: an end of the partition, a time of Kafka's records, {topic: {partition: offset}}."""
Place = int | Literal["earliest", "latest"] | datetime
Source = Literal["force", "file", "kafka", "initial"]


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin one partition, and what beyond that is finished already."""

    offset: Place
    """An offset is the next one to read; a time means the first record at or after it."""
    ahead: tuple[OffsetRange, ...]
    source: Source
    reason: str
    """A sentence for people."""


def choose_start(
    partition: TopicPartition,
    *,
    force: bool,
    initial: Initial,
    file: FileEntry | None,
    kafka: Checkpoint | None,
) -> Start:
    """The first of these that holds:

    1. `force`: begin at `initial`, whatever is remembered.
    2. The local file, if Kafka's committed offset is what this file last committed there: the file's own
       offset; or the one Kafka acknowledged before (the last commit did not arrive); or none at all.
    3. Kafka's committed offset: somebody moved it, or another worker went on from there.
    4. `initial`.

    What either store says is finished ahead counts where both stand at the same offset.
    """
    if force:
        return _at_initial(partition, initial, "force", "checkpoint.force is set")
    if file is not None:
        return _from_file(file, kafka)
    if kafka is not None:
        return _from_kafka(kafka, "the local file does not know this partition")
    return _at_initial(partition, initial, "initial", "neither the local file nor Kafka knows this partition")


def _from_file(file: FileEntry, kafka: Checkpoint | None) -> Start:
    if kafka is None:
        reason = f"the local file says {file.offset}, and Kafka has no committed offset"
        return Start(file.offset, file.ahead, "file", reason)
    if kafka.offset == file.offset:
        reason = f"the local file and Kafka agree on {file.offset}"
        return Start(file.offset, _union((*file.ahead, *kafka.ahead)), "file", reason)
    if kafka.offset == file.acknowledged:
        reason = (
            f"the local file says {file.offset}; Kafka still has {kafka.offset}, the last it acknowledged to "
            "this file: the last commit did not arrive"
        )
        return Start(file.offset, file.ahead, "file", reason)
    last = "nothing" if file.acknowledged is None else str(file.acknowledged)
    return _from_kafka(
        kafka,
        f"the local file ({file.offset}, acknowledged: {last}) did not commit that: it was moved, or another "
        "worker went on from there",
    )


def _from_kafka(kafka: Checkpoint, why: str) -> Start:
    return Start(kafka.offset, kafka.ahead, "kafka", f"Kafka's committed offset is {kafka.offset}; {why}")


def _at_initial(
    partition: TopicPartition, initial: Initial, source: Literal["force", "initial"], why: str
) -> Start:
    place: Place
    if isinstance(initial, Mapping):
        named = initial.get(partition.topic, {}).get(partition.partition)
        if named is None:
            reason = f"{why}; checkpoint.initial does not name {partition}: earliest"
            return Start("earliest", (), source, reason)
        place = named
    else:
        place = initial
    text = place.isoformat() if isinstance(place, datetime) else str(place)
    return Start(place, (), source, f"{why}; checkpoint.initial is {text}")


def _union(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The ranges as a checkpoint holds them: ascending, apart from each other."""
    merged: list[OffsetRange] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1].end:
            merged[-1] = OffsetRange(merged[-1].first, max(end, merged[-1].end))
        else:
            merged.append(OffsetRange(first, end))
    return tuple(merged)
