"""The versions of rows in a target, and its memory of the topics that feed it.

A version is the position of a row's last change in the source, as one number.
Elasticsearch and OpenSearch accept an external version only if it is higher than the document's (63 bits,
https://www.elastic.co/docs/reference/elasticsearch/rest-apis/optimistic-concurrency-control).
ClickHouse's ReplacingMergeTree keeps the row with the highest version. binlane's version contains an epoch
(7 bits), the offset (40 bits) and the row's index in its record (16 bits). So a late change never wins.
Offsets count within one topic. So each topic of a table has its own epoch; a recreated topic a later one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from handlers.api import Batch, Change
from handlers.failures import UnfitPlace
from handlers.progress import MadeAnew, former_topic

EPOCH_BITS = 56
"""A version's bits below its epoch: `version - 1 >> EPOCH_BITS` is the epoch."""
_EPOCHS, _OFFSETS, _ROWS = 1 << 7, 1 << 40, (1 << 16) - 1


class BeyondVersions(ValueError):
    """A position that does not fit into a version."""


class Topic(NamedTuple):
    """One of the topics that feed a target table; its epoch is its place among them."""

    name: str
    id: str | None
    """Kafka's topic id; None: not known yet."""


class Versions(NamedTuple):
    """The versions of a batch's changes."""

    of: Callable[[Change], int]
    """Returns a change's version. Raises BeyondVersions."""
    topics: Sequence[Topic]
    """The topics that the target must remember before any of these changes is written."""
    made_anew: Sequence[MadeAnew]


def versions_of(
    batch: Batch, topics: Sequence[Topic], *, base: int, again: Mapping[str, Collection[str]]
) -> Versions:
    """`topics`: the table's topics so far. `base`: the option `epoch`. Raises FormerTopic."""
    if batch.replay_of is not None:
        topic, _, offset = batch.replay_of
        epoch = epoch_of_replay(topics, topic)
        return Versions(lambda change: version_of(epoch, offset, change.index), topics, ())
    epochs: dict[str, int] = {}
    made_anew: list[MadeAnew] = []
    for change in batch.changes:
        topic = change.topic
        if topic in epochs:
            continue
        former = [each.id for each in topics if each.name == topic and each.id is not None]
        found = batch.topic_ids.get(topic)
        topics, epochs[topic] = followed(topics, topic, found, again)
        if found is not None and former and former[-1] != found:
            made_anew.append(MadeAnew(topic, change.partition, former[-1], found))
    return Versions(
        lambda change: version_of(base + epochs[change.topic], change.offset, change.index), topics, made_anew
    )


def version_of(epoch: int, offset: int, row: int) -> int:
    """Return a version. Raises BeyondVersions.

    >>> version_of(0, 0, 0), version_of(0, 1, 0), version_of(1, 0, 0) > version_of(0, 9, 9)
    (1, 65537, True)
    """
    if epoch >= _EPOCHS:
        raise BeyondVersions(
            f"{_EPOCHS} versions can distinguish only this many topics (recreated, or others) and steps of "
            f"the option epoch, and this is number {epoch + 1}: route the table to a new place in the target "
            "(its own index or table), with a new snapshot"
        )
    if offset >= _OFFSETS:
        raise BeyondVersions(f"versions can store offsets below 2^40, found: {offset}")
    if row >= _ROWS:
        raise BeyondVersions(f"versions can store {_ROWS} rows of a record, found: row {row}")
    return (epoch << EPOCH_BITS | offset << 16 | row) + 1


def followed(
    topics: Sequence[Topic], name: str, found: str | None, again: Mapping[str, Collection[str]]
) -> tuple[Sequence[Topic], int]:
    """Return a table's topics, including the topic `name`, and the topic's epoch.

    `found`: its id, if known. `again`: the id of a topic that is live again -> the ids that it follows.
    Raises FormerTopic if another topic of this name has replaced it.

    >>> followed([Topic("cdc", "A")], "cdc", "B", {})
    ([Topic(name='cdc', id='A'), Topic(name='cdc', id='B')], 1)
    """
    ours = [place for place, topic in enumerate(topics) if topic.name == name]
    if not ours:
        return [*topics, Topic(name, found)], len(topics)
    last = ours[-1]
    if found is None or topics[last].id == found:
        return topics, last
    if topics[last].id is None:
        return [*topics[:last], Topic(name, found), *topics[last + 1 :]], last
    ids = [topics[place].id for place in ours]
    behind = max((place for place, one in enumerate(ids) if one == found), default=-1) + 1
    later = [one for one in ids[behind:] if one is not None]
    if found in ids and not (found in again and set(again[found]).issuperset(later)):
        raise former_topic(name, found, later)
    return [*topics, Topic(name, found)], len(topics)


def epoch_of_replay(topics: Sequence[Topic], name: str) -> int:
    """Return the epoch of a dead letter: that of the first topic of this name, because its own is unknown.
    It must not win over later writes."""
    return next((place for place, topic in enumerate(topics) if topic.name == name), 0)


def has_reached(topics: Sequence[Topic], name: str, *, base: int, version: int) -> bool:
    """Whether the topic's current epoch is the epoch of this version or a later one.

    >>> topics = [Topic("cdc", "A"), Topic("cdc", "B")]
    >>> [has_reached(topics, "cdc", base=0, version=version_of(epoch, 7, 0)) for epoch in (1, 2)]
    [True, False]
    """
    places = [place for place, topic in enumerate(topics) if topic.name == name]
    return bool(places) and version - 1 >> EPOCH_BITS <= base + places[-1]


# ---- the memory of a target table: which topics feed it, in revisions with one writer each

# The order of the remembered topics decides a row's epoch, so it must never change. If two workers each
# add a topic, the later one must see the other's before it writes a row. The description of a table
# cannot be changed conditionally. But ClickHouse and Elasticsearch let only one writer create a name (of a
# column or a field). So each revision has its own name, is complete and never changes. The newest one counts.
# A writer whose number is taken reads again.

_NUMBER = re.compile(r"_(\d+)$")
_PARTITIONS = 2
"""Partitions to remember. Two are enough to know that there are several."""


class Unfit(UnfitPlace):
    """The server, table or index cannot accept a table's rows. The message says why, and what to do."""


RENAMED = "If the source has only renamed them, restore the former names with the table's rules (rename)"


class UnfitColumn(Exception):
    """The table or index lacks a column that some rows have. The message says what to do."""


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sources of a target table."""

    table: str | None = None
    """The source table; None: not known yet."""
    topics: tuple[Topic, ...] = ()
    """In the order of their epochs."""
    partitions: tuple[str, ...] = ()
    """The first partitions that rows came from."""
    epoch: int = 0
    """The highest option `epoch` that the table was written with."""
    key: tuple[str, ...] = ()
    """The latest columns of the rows' primary key; empty: not known yet."""
    number: int = 0
    """The revision's number, which its text omits; 0: no revision exists."""

    @property
    def text(self) -> str:
        return msgspec.json.encode(msgspec.structs.replace(self, number=0)).decode()

    def next(self) -> Memory:
        """Return the same content with the next revision's number."""
        return msgspec.structs.replace(self, number=self.number + 1)


_read_memory = msgspec.json.Decoder(Memory).decode


def recalled(place: str, texts: Mapping[str, str]) -> Memory:
    """Return the newest revision of `place`. `texts`: name -> revision; each name ends in `_NUMBER`.

    Raises Unfit if the newest text cannot be read.

    >>> recalled("orders", {"memory_9": "{}", "memory_10": '{"topics": [["cdc", "A"]]}'}).topics
    (Topic(name='cdc', id='A'),)
    """
    numbers = {int(found[1]): name for name in texts if (found := _NUMBER.search(name))}
    if not numbers:
        return Memory()
    name = numbers[max(numbers)]
    try:
        memory = _read_memory(texts[name])
    except msgspec.MsgspecError as error:
        raise Unfit(
            f"{place}: the contents of {name} cannot be read, because they were changed: {error}"
        ) from None
    return msgspec.structs.replace(memory, number=max(numbers))


def remembering(
    memory: Memory,
    *,
    table: str,
    topics: Sequence[Topic],
    epoch: int,
    key: Sequence[str] = (),
    partitions: Iterable[str] = (),
) -> Memory:
    """Return the memory that must be stored before changes of these topics are written.

    >>> remembering(Memory(epoch=2), table="t.t", topics=[], epoch=1, partitions=["cdc[1]", "cdc[0]"])
    Memory(table='t.t', topics=(), partitions=('cdc[0]', 'cdc[1]'), epoch=2, key=(), number=0)
    """
    known = memory.partitions
    if len(known) < _PARTITIONS:
        known = tuple(dict.fromkeys((*known, *sorted(partitions))))[:_PARTITIONS]
    ids = tuple(key) or memory.key
    return Memory(table, tuple(topics), known, max(memory.epoch, epoch), ids, memory.number)
