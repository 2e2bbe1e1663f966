"""The version that a document has: the place of its last change in the source's order, as one number.

Elasticsearch and OpenSearch take a write with an external version only if it is higher than the document's
(63 bits, https://www.elastic.co/docs/reference/elasticsearch/rest-apis/optimistic-concurrency-control). Ours
is made of an epoch (7 bits), the offset (40 bits) and the row's place in its record (16 bits), so what comes
late never wins. Offsets count within one topic: each topic that an index is fed from has an epoch, and one
that was made anew has a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from handlers.progress.topic_ids import FormerTopic

__all__ = ["BeyondVersions", "Topic", "epoch_of_replay", "followed", "version_of"]

_EPOCHS, _OFFSETS, _ROWS = 1 << 7, 1 << 40, (1 << 16) - 1


class BeyondVersions(ValueError):
    """A place that no version can tell."""


class Topic(NamedTuple):
    """One of the topics that an index is fed from; its epoch is its place among them."""

    name: str
    id: str | None
    """Kafka's; None: nobody could tell it yet."""


def version_of(epoch: int, offset: int, row: int) -> int:
    """Raises BeyondVersions.

    >>> version_of(0, 0, 0), version_of(0, 1, 0), version_of(1, 0, 0) > version_of(0, 9, 9)
    (1, 65537, True)
    """
    if epoch >= _EPOCHS:
        raise BeyondVersions(
            f"{_EPOCHS} topics (made anew, or others) and steps of the option epoch are all that versions "
            f"can tell apart, this is number {epoch + 1}: give the table a new index (option index), with a "
            f"new snapshot of it"
        )
    if offset >= _OFFSETS:
        raise BeyondVersions(f"versions hold offsets below 2^40, found: {offset}")
    if row >= _ROWS:
        raise BeyondVersions(f"versions hold {_ROWS} rows of a record, found: row {row}")
    return (epoch << 56 | offset << 16 | row) + 1


def followed(
    topics: Sequence[Topic], name: str, found: str | None, again: Mapping[str, Collection[str]]
) -> tuple[Sequence[Topic], int]:
    """The topics of an index once changes of this one are written, and its epoch. `found`: its id, where
    known; `again`: an id that is the live topic's once more -> those that it follows.

    Raises FormerTopic for one that another of its name has followed.

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
    later = [one for one in ids[_last(ids, found) + 1 :] if one is not None]
    if found in ids and not (found in again and set(again[found]).issuperset(later)):
        listed = ", ".join(f'"{one}"' for one in later)
        raise FormerTopic(
            f"these changes are of a former topic {name} (id {found}), and changes of the topic that took "
            f"its place (id {', '.join(later)}) were written already. Another worker has read the new topic: "
            f"this one has to leave the partition. Where {found} is the live topic again, as after a "
            f"fail-over to another cluster and back, say so in this handler's options: topic_again: "
            f'{{"{found}": [{listed}]}}'
        )
    return [*topics, Topic(name, found)], len(topics)


def epoch_of_replay(topics: Sequence[Topic], name: str) -> int:
    """Of a dead letter: which of the topics of this name it is of is not known, so the first. It must not
    beat what was written after it."""
    return next((place for place, topic in enumerate(topics) if topic.name == name), 0)


def _last(ids: Sequence[str | None], found: str) -> int:
    return max((place for place, one in enumerate(ids) if one == found), default=-1)
