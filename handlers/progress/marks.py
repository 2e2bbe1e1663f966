"""Marks: how far a table was applied, which changes of a batch are new, and reports of those that are not.

A mark is the (offset, index) of the last applied change. A table has one for each topic and partition that
it is fed from. If batches are sharded (`order_by: row`), each shard has its own mark. A change counts as
applied if it is at or before the mark of the whole table or of its shard. After a restart or a rebalance,
changes come again from an earlier position, in order, but in other batches. After a change of `order_by`,
changes that came for the whole table may come by shard, or the other way round."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from handlers.api import Change, HandlerContext
from handlers.progress.topic_ids import MadeAnew
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
_METRIC = "binlane_handler_passed_over_total"
_TABLES = 10_000
"""Number of tables whose log state is kept. It is bounded, because a source may keep creating tables."""


def beyond(changes: Sequence[Change], known: Known, shard: int) -> tuple[Sequence[Change], Sequence[int]]:
    """Return the changes of a batch that are not applied yet, and their places in it.

    `shard`: the batch's, or WHOLE for a batch of the whole table. Only such a batch uses the marks of
    other shards in `known`."""
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


class PassingOver:
    """Counts and logs the changes that a handler skips because of its marks. Any thread.

    Some changes come again after a restart or a rebalance, so skipping some is normal. It is logged once
    for each table, and again at each tenfold."""

    def __init__(self, context: HandlerContext, log: Any) -> None:
        context.metrics.count(_METRIC, 0, handler=context.handler)  # rate() misses a counter that starts at 2
        self._context = context
        self._log = log
        self._lock = threading.Lock()  # guards the two below
        self._totals: dict[str, int] = {}
        self._told: dict[tuple[str, str, str], None] = {}

    def passed_over(self, table: str, count: int) -> None:
        """Record that `count` changes of a batch were already applied."""
        if not count:
            return
        handler = self._context.handler
        self._context.metrics.count(_METRIC, count, handler=handler)
        with self._lock:
            before = self._totals.pop(table, 0)
            total = self._totals[table] = before + count
            _bound(self._totals)
        if len(str(total)) == len(str(before)) and before:
            return
        self._log.log(
            logging.WARNING if before else logging.INFO,
            "changes_passed_over",
            table=table,
            handler=handler,
            count=total,
            means="the target's marks show that they were applied before; they are not applied again",
        )

    def made_anew(self, table: str, found: Iterable[MadeAnew]) -> None:
        """Log, once for each topic, that the marks of these partitions restarted with a new topic."""
        for each in found:
            told = each.topic, each.former_id, each.topic_id
            with self._lock:
                is_known = told in self._told
                self._told[told] = None
                _bound(self._told)
            if not is_known:
                self._log.warning(
                    "topic_made_anew",
                    topic=each.topic,
                    former_id=each.former_id,
                    topic_id=each.topic_id,
                    table=table,
                    handler=self._context.handler,
                    means="its offsets restart, so marks of the former topic do not cover it: all its "
                    "records are applied to the existing rows",
                )


def _bound(known: dict[Any, Any]) -> None:
    if len(known) > _TABLES:
        del known[next(iter(known))]
