"""Where a start begins: one rule, and a sentence that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from offsets.finished import Found, covered
from offsets.stores.file_format import FileEntry
from offsets.types import Checkpoint, Committed, OffsetRange, TopicPartition, count_of

Initial = Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]]
"""`checkpoint.initial`: an end of the partition, a time of Kafka's records, {topic: {partition: offset}}."""
StartOffset = int | Literal["earliest", "latest"] | datetime
Source = Literal["force", "file", "sql", "kafka", "initial", "new topic"]


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin one partition, and what beyond that is finished already."""

    offset: StartOffset
    """An offset is the next one to read; a time means the first record at or after it."""
    ahead: tuple[OffsetRange, ...]
    source: Source
    reason: str
    """A sentence for people."""
    earlier: Checkpoint | None = None
    """What was known of an earlier topic of the same name, whose offsets mean nothing any more."""
    began_with: int | None = None
    """As in `Checkpoint`."""
    topic_id: str | None = None
    """That of the topic whose offset this is, as far as it is told or remembered."""


def needs_the_rest_of(
    partitions: Iterable[TopicPartition], initial: Initial, *stores: Mapping[TopicPartition, object]
) -> set[str]:
    """The topics of which all partitions must be looked at, not only these: a partition that no store knows
    begins at `initial` only where the group knows none of its topic."""
    if initial == "earliest" or isinstance(initial, Mapping):
        return set()
    return {each.topic for each in partitions if not any(each in store for store in stores)}


def choose_starts(
    partitions: Iterable[TopicPartition],
    *,
    forced: Callable[[TopicPartition], bool],
    initial: Initial,
    file: Mapping[TopicPartition, FileEntry],
    kafka: Mapping[TopicPartition, Committed],
    topic_ids: Mapping[str, str],
    counts: Mapping[str, int],
    windows: Mapping[str, Found] | None = None,
) -> dict[TopicPartition, Start]:
    """`choose_start` for each. The stores tell of other partitions of their topics, too, where that counts
    (see `needs_the_rest_of`); `counts`: how many partitions a topic has, as far as it is known. `windows`:
    those of the map of finished offsets that the file names, as far as they can be used."""
    known: dict[str, list[Checkpoint]] = {}
    for place, entry in file.items():
        known.setdefault(place.topic, []).append(entry.checkpoint)
    for place, committed in kafka.items():
        known.setdefault(place.topic, []).append(committed.checkpoint)
    starts = {}
    for partition in partitions:
        topic_id, own = topic_ids.get(partition.topic), file.get(partition)
        name = None if own is None else own.window
        began = began_with(known.get(partition.topic, ()), topic_id)
        start = choose_start(
            partition,
            force=forced(partition),
            initial=initial,
            file=own,
            kafka=kafka.get(partition),
            topic_id=topic_id,
            began_with=began,
            window=None if windows is None or name is None else windows.get(name),
        )
        starts[partition] = replace(
            start,
            began_with=counts.get(partition.topic) if began is None else began,
            topic_id=start.topic_id if topic_id is None else topic_id,
        )
    return starts


def choose_start(
    partition: TopicPartition,
    *,
    force: bool,
    initial: Initial,
    file: FileEntry | None,
    kafka: Committed | None,
    topic_id: str | None = None,
    began_with: int | None = None,
    window: Found | None = None,
) -> Start:
    """The first of these that holds:

    1. `force`: begin at `initial`, whatever is remembered.
    2. The local file, if Kafka still holds exactly the commit that this file last knew there: its own, or the
       one that it began from (the last commit did not arrive); or none at all. A commit without metadata is
       like any other at its offset, and tells nothing. What the map of finished offsets remembers beyond the
       file counts with it, unless all that speaks for the file is that Kafka's commit says the same: another
       worker's may, that went on from there.
    3. Kafka's committed offset: somebody moved it, or another worker went on from there. What the file says
       is finished ahead may have been repeated since, and must come again with the rest.
    4. The beginning: the topic was made anew since, or this partition was added to one that the group reads.
    5. `initial`.

    What was remembered of another topic, by Kafka's ids of both, is left out. `topic_id`: that of today,
    None: it cannot be told. `began_with`: as the function of that name gives it for the topic.
    """
    if force:
        return _at_initial(partition, initial, "force", "checkpoint.force is set")
    earlier = None
    if file is not None and _differ(file.topic_id, topic_id):
        earlier = file.checkpoint
        # Where the brokers take no metadata, a commit does not tell its topic: it is known by this file.
        if kafka is not None and kafka.mark == file.acknowledged:
            kafka = None
        file = None
    if kafka is not None and _differ(kafka.checkpoint.topic_id, topic_id):
        earlier, kafka = earlier or kafka.checkpoint, None
    if file is not None and kafka is not None and _differ(file.topic_id, kafka.checkpoint.topic_id):
        # Which one is today's cannot be told; but Kafka drops its offsets with a topic.
        earlier, file = file.checkpoint, None
    if file is not None:
        start = _from_file(file, kafka, window)
        known = file.topic_id if start.source == "file" else None
        return start if known is None else replace(start, topic_id=known)
    if kafka is not None:
        return _from_kafka(kafka, "the local file does not know this partition")
    if earlier is not None:
        return _anew(earlier, topic_id)
    why = "neither the local file nor Kafka knows this partition"
    if began_with is not None and partition.partition >= began_with and not isinstance(initial, Mapping):
        why = f"{why}, but others of its topic: it was added later, and begins at its beginning"
        return Start("earliest", (), "initial", why)
    return _at_initial(partition, initial, "initial", why)


def began_with(known: Iterable[Checkpoint], topic_id: str | None) -> int | None:
    """How many partitions a topic had when the group began to read it, told by what is remembered of any of
    them. None: the group never read it. Partitions from that number on were added later."""
    numbers = [
        0 if each.began_with is None or _differ(each.topic_id, topic_id) else each.began_with
        for each in known
    ]
    return min(numbers, default=None)


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _from_file(file: FileEntry, kafka: Committed | None, window: Found | None) -> Start:
    if kafka is None:
        return _with(window, file, f"the local file says {file.offset}, and Kafka has no committed offset")
    is_known = kafka.mark == file.acknowledged
    is_own = not kafka.mark.is_bare and (is_known or (window is not None and kafka.mark in window.marks))
    if is_own or kafka.checkpoint[:2] == file.checkpoint[:2]:
        reason = f"the local file and Kafka agree on {file.offset}"
        if kafka.checkpoint.offset > file.offset:
            reason = (
                f"the local file says {file.offset}; Kafka has {kafka.checkpoint.offset}, which the same "
                "worker committed: it could not write the file"
            )
        elif kafka.checkpoint.offset != file.offset:
            reason = (
                f"the local file says {file.offset}; Kafka still has {kafka.checkpoint.offset}, the last it "
                "acknowledged to this file: the last commit did not arrive"
            )
        return _with(window if is_own else None, file, reason)
    last = "nothing" if file.acknowledged is None else str(file.acknowledged.offset)
    why = "did not commit that: it was moved, or another worker went on from there"
    if file.acknowledged is not None and file.acknowledged.checksum is None:
        why = "is of an earlier binlane, which did not write down whose commit it knew"
    elif is_known:
        why = "does not tell whose that is: it is without metadata, as another worker's would be"
    return _from_kafka(kafka, f"the local file ({file.offset}, acknowledged: {last}) {why}")


def _with(window: Found | None, file: FileEntry, reason: str) -> Start:
    """Where the file says, and what the window of the map knows to be finished since."""
    if window is None:
        return Start(file.offset, file.ahead, "file", reason)
    (_, offset), *ahead = covered(file.offset, file.ahead, window.ranges)
    more = offset + count_of(ahead) - file.offset - count_of(file.ahead)
    if more:
        reason = f"{reason}; {more} offsets have been finished since, by the map of finished offsets"
    return Start(offset, tuple(ahead), "file", reason)


def _from_kafka(kafka: Committed, why: str) -> Start:
    offset, ahead = kafka.checkpoint[:2]
    reason = f"Kafka's committed offset is {offset}; {why}"
    return Start(offset, ahead, "kafka", reason, topic_id=kafka.checkpoint.topic_id)


def _anew(earlier: Checkpoint, topic_id: str | None) -> Start:
    reason = (
        f"the topic was made anew: {earlier.offset} was remembered of one with the id {earlier.topic_id}, "
        f"today's is {topic_id}"
    )
    return Start("earliest", (), "new topic", reason, earlier)


def _at_initial(
    partition: TopicPartition, initial: Initial, source: Literal["force", "initial"], why: str
) -> Start:
    place: StartOffset
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
