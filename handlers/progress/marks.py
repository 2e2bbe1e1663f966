"""How far a table was applied, and what of a batch is beyond it: the rules of targets that keep marks.

A mark is the (offset, index) of the last change that was applied, for each topic and partition that the
table's changes come from: of the whole table, or, where batches come by shard (`order_by: row`), of each
shard for itself. A change is applied when its place is at or before the mark of the whole table or that of
its shard. After a restart or a rebalance changes come again from an earlier position, in order, cut into
other batches; after a change of `order_by` they come by shard where they came whole, or the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter

from handlers.api import Change
from handlers.sharding import shard_of

WHOLE = -1
"""The shard of marks of a whole table."""

Partition = tuple[str, int]
"""Topic and partition."""
Place = tuple[int, int]
"""Offset and index: of a change within its partition."""
Known = Mapping[Partition, Mapping[int, Place]]
"""Partition -> shard -> mark."""

BEFORE_ALL: Place = (-1, -1)
_PARTITION = attrgetter("topic", "partition")


def beyond(changes: Sequence[Change], known: Known, shard: int) -> tuple[Sequence[Change], Sequence[int]]:
    """Which changes of a batch are not applied yet, and their places in it.

    `shard`: the batch's, WHOLE for a batch of the whole table. Of `known`, the marks of other shards are
    looked at only for a batch of the whole table.
    """
    if not any(_may_cover(first, known, shard) for first in _first_of_each(changes, _partitions(changes))):
        return changes, range(len(changes))
    places = [place for place, change in enumerate(changes) if not _is_applied(change, known, shard)]
    return [changes[place] for place in places], places


def reached(changes: Sequence[Change], known: Known, shard: int) -> dict[Partition, Place]:
    """The marks of `shard` as they are once the batch is applied, as far as they move."""
    moved: dict[Partition, Place] = {}
    for last in _first_of_each(reversed(changes), _partitions(changes)):
        partition, place = (last.topic, last.partition), (last.offset, last.index)
        if place > known.get(partition, {}).get(shard, BEFORE_ALL):
            moved[partition] = place
    return moved


def _partitions(changes: Iterable[Change]) -> set[Partition]:
    return set(map(_PARTITION, changes))


def _first_of_each(changes: Iterable[Change], partitions: set[Partition]) -> Collection[Change]:
    """The first of the changes for each partition; their offsets only grow, so most need no look."""
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
