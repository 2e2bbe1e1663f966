"""Marks: how far a table was applied, and which changes of a batch are new.

A mark is the (offset, index) of the last applied change. A table has one for each topic and partition that
it is fed from. If batches are sharded (`order_by: row`), each shard has its own mark. A change counts as
applied if it is at or before the mark of the whole table or of its shard. After a restart or a rebalance,
changes come again from an earlier position, in order, but in other batches. After a change of `order_by`,
changes that came for the whole table may come by shard, or the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter

from handlers.api import Change
from handlers.sharding import shard_of

WHOLE = -1
"""The shard number in the marks of a whole table."""

Partition = tuple[str, int]
"""Topic and partition."""
Place = tuple[int, int]
"""Offset and index of a change within its partition."""
Known = Mapping[Partition, Mapping[int, Place]]
"""Partition -> shard -> mark."""

BEFORE_ALL: Place = (-1, -1)
_PARTITION = attrgetter("topic", "partition")


def beyond(changes: Sequence[Change], known: Known, shard: int) -> tuple[Sequence[Change], Sequence[int]]:
    """Return the changes of a batch that are not applied yet, and their places in it.

    `shard`: the batch's, or WHOLE for a batch of the whole table. Only such a batch uses the marks of
    other shards in `known`.
    """
    if not any(_may_cover(first, known, shard) for first in _first_of_each(changes, _partitions(changes))):
        return changes, range(len(changes))
    places = [place for place, change in enumerate(changes) if not _is_applied(change, known, shard)]
    return [changes[place] for place in places], places


def reached(changes: Sequence[Change], known: Known, shard: int) -> dict[Partition, Place]:
    """Return the marks of `shard` that move when the batch is applied, with their new places."""
    moved: dict[Partition, Place] = {}
    for last in _first_of_each(reversed(changes), _partitions(changes)):
        partition, place = (last.topic, last.partition), (last.offset, last.index)
        if place > known.get(partition, {}).get(shard, BEFORE_ALL):
            moved[partition] = place
    return moved


def _partitions(changes: Iterable[Change]) -> set[Partition]:
    return set(map(_PARTITION, changes))


def _first_of_each(changes: Iterable[Change], partitions: set[Partition]) -> Collection[Change]:
    """Return the first change of each partition. Stops at the last partition's first change."""
    firsts: dict[Partition, Change] = {}
    for change in changes:
        firsts.setdefault((change.topic, change.partition), change)
        if len(firsts) == len(partitions):
            break
    return firsts.values()


def _may_cover(first: Change, known: Known, shard: int) -> bool:
    marks = known.get((first.topic, first.partition), {})
    place = (first.offset, first.index)
    if shard == WHOLE:
        return any(place <= mark for mark in marks.values())
    return place <= max(marks.get(WHOLE, BEFORE_ALL), marks.get(shard, BEFORE_ALL))


def _is_applied(change: Change, known: Known, shard: int) -> bool:
    marks = known.get((change.topic, change.partition), {})
    place = (change.offset, change.index)
    if place <= marks.get(WHOLE, BEFORE_ALL):
        return True
    if shard == WHOLE and (len(marks) > 1 or WHOLE not in marks):
        own = shard_of(change)
        shard = WHOLE if own is None else own
    return place <= marks.get(shard, BEFORE_ALL)
