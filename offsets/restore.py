"""Where a start begins: one rule, and a sentence that explains the choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
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
    """Where to start one partition, and what is already finished beyond that."""

    offset: StartOffset
    """An offset is the next one to read. A time means the first record at or after it."""
    ahead: tuple[OffsetRange, ...]
    source: Source
    reason: str
    """A sentence for people."""
    earlier: Checkpoint | None = None
    """The checkpoint of an earlier topic with this name, whose offsets no longer mean anything."""
    began_with: int | None = None
    """The same as in `Checkpoint`."""
    topic_id: str | None = None
    """The id of the topic whose offset this is, as far as known or stored."""


def needs_the_rest_of(
    partitions: Iterable[TopicPartition], initial: Initial, *stores: Mapping[TopicPartition, object]
) -> set[str]:
    """Return the topics whose other partitions must also be looked up. A partition that no store knows starts
    at `initial` only if the group knows no partition of its topic."""
    if initial == "earliest" or isinstance(initial, Mapping):
        return set()
    return {each.topic for each in partitions if not any(each in store for store in stores)}


def later_topics(
    topics: Iterable[str], patterns: Collection[str], known: Iterable[TopicPartition]
) -> set[str]:
    """Return the topics that came after the group began, as for new tables. Only expressions match them, and
    the group has positions (`known`), but none in them."""
    read = {place.topic for place in known}
    return {each for each in topics if read and each not in read and each not in patterns}


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
    """Choose the start of each partition (see `choose_start`). The stores also contain other partitions of
    the topics if these matter (see `needs_the_rest_of`). `counts`: the topics' known numbers of partitions, 0
    for one of `later_topics`. `windows`: the usable windows of the map that the file names."""
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
        if began is None and counts.get(partition.topic) == 0:
            began = 0
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
    """Choose the first of these that applies:

    1. `force`: start at `initial`, whatever is stored.
    2. The local file, if Kafka has exactly the commit that this file last knew, or none. That commit is the
       file's own, or the one that it started from (the last commit did not arrive). A commit without
       metadata equals any other at its offset, and proves nothing. The map of finished offsets counts too,
       beyond the file. It does not count if Kafka's commit merely has the same content as the file: another
       worker may have committed it, and continued from there.
    3. Kafka's committed offset: it was moved, or another worker continued from there. What the file lists as
       finished ahead may have been repeated since, and must be repeated with the rest.
    4. The topic's start: it was recreated, or this partition was added to a topic that the group reads.
    5. `initial`.

    Stored positions of another topic, according to Kafka's ids of both, are ignored. `topic_id`: the present
    id, or None if unknown. `began_with`: the result of that function for the topic."""
    if force:
        return _at_initial(partition, initial, "force", "checkpoint.force is set")
    earlier = None
    if file is not None and _differ(file.topic_id, topic_id):
        earlier = file.checkpoint
        # If the brokers accept no metadata, a commit does not name its topic. It is identified by this file.
        if kafka is not None and kafka.mark == file.acknowledged:
            kafka = None
        file = None
    if kafka is not None and _differ(kafka.checkpoint.topic_id, topic_id):
        earlier, kafka = earlier or kafka.checkpoint, None
    if file is not None and kafka is not None and _differ(file.topic_id, kafka.checkpoint.topic_id):
        # It is unknown which one is the present topic's. But Kafka drops its offsets with a topic.
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
        why = f"{why}, but they know others: it was added later, and is read from its beginning"
        return Start("earliest", (), "initial", why)
    return _at_initial(partition, initial, "initial", why)


def began_with(known: Iterable[Checkpoint], topic_id: str | None) -> int | None:
    """Return how many partitions a topic had when the group began to read it, according to any stored
    checkpoint. None: the group never read it. Partitions from that number on were added later."""
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
    why = "did not commit that: it was moved, or another worker continued from there"
    if file.acknowledged is not None and file.acknowledged.checksum is None:
        why = "is from an earlier binlane, which did not store whose commit it knew"
    elif is_known:
        why = "cannot tell whose commit that is: it has no metadata, like another worker's"
    return _from_kafka(kafka, f"the local file ({file.offset}, acknowledged: {last}) {why}")


def _with(window: Found | None, file: FileEntry, reason: str) -> Start:
    """Return the file's position, plus what the window of the map has as finished since."""
    if window is None:
        return Start(file.offset, file.ahead, "file", reason)
    (_, offset), *ahead = covered(file.offset, file.ahead, window.ranges)
    more = offset + count_of(ahead) - file.offset - count_of(file.ahead)
    if more:
        reason = f"{reason}; {more} offsets were finished since, according to the map of finished offsets"
    return Start(offset, tuple(ahead), "file", reason)


def _from_kafka(kafka: Committed, why: str) -> Start:
    offset, ahead = kafka.checkpoint[:2]
    reason = f"Kafka's committed offset is {offset}; {why}"
    return Start(offset, ahead, "kafka", reason, topic_id=kafka.checkpoint.topic_id)


def _anew(earlier: Checkpoint, topic_id: str | None) -> Start:
    reason = (
        f"the topic was recreated: {earlier.offset} was stored for a topic with the id {earlier.topic_id}, "
        f"but the present id is {topic_id}"
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
