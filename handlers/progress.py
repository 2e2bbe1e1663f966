"""Marks: how far a table was applied, which changes of a batch are new, and reports of those that are not.

A mark is the (offset, index) of the last applied change. A table has one for each topic and partition that
it is fed from. If batches are sharded (`order_by: row`), each shard has its own mark. A change counts as
applied if it is at or before the mark of the whole table or of its shard. After a restart or a rebalance,
changes come again from an earlier position, in order, but in other batches. After a change of `order_by`,
changes that came for the whole table may come by shard, or the other way round.

A mark also has its topic's id. A recreated topic keeps its name, but Kafka gives it another id. Its offsets
start at 0 again, so marks of the former topic cover none of its changes. A worker (for example, a process
that was frozen) may still have changes of the former topic. They must not move the marks back, so a few
former ids are kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from handlers.api import Change, HandlerContext
from handlers.rows import shard_of

_FORMER = 8
"""Former ids to keep. No worker still has changes of a topic that was recreated this often."""


class FormerTopic(RuntimeError):
    """Changes of a topic arrived after changes of its replacement were applied."""


class TopicId(NamedTuple):
    """The id of a mark's topic, with former ids."""

    current: str | None = None
    """None: the mark was written without an id; it takes the id of the changes that move it next."""
    former: tuple[str, ...] = ()
    """Ids of earlier topics of this name, the latest last."""

    def covers(self, mark: TopicId) -> bool:
        """Whether a mark with this id counts for changes of our topic. While it is unknown which of several
        ids is ours, none of their marks counts: a change may be applied twice, but none is lost."""
        return mark.current is None or mark.current == self.current


class MadeAnew(NamedTuple):
    """A partition whose marks belonged to a former topic of the same name."""

    topic: str
    partition: int
    former_id: str
    topic_id: str


class KnownIds:
    """All ids that each topic had in one handler's marks, across tables, as far as this process knows. Any
    thread.

    Kafka never reuses an id on a cluster. An id that no mark has is a new topic's, which follows all others.
    So even a table's first mark shows which topics are former ones."""

    def __init__(self, again: Mapping[str, Collection[str]] | None = None) -> None:
        """`again`: the id of a topic that is live again -> the ids that it follows."""
        self._again = again or {}
        self._lock = threading.Lock()  # guards the one below
        self._earlier: dict[str, dict[str, dict[str, None]]] = {}
        """Topic -> id -> the ids before it."""

    def learn(self, topic: str, found: TopicId) -> None:
        """Add the ids of a mark."""
        with self._lock:
            ids, before = self._earlier.setdefault(topic, {}), dict[str, None]()
            for one in (*found.former, found.current):
                if one is not None:
                    ids.setdefault(one, {}).update(each for each in before.items() if each[0] != one)
                    before[one] = None

    def followed(
        self,
        known: Collection[TopicId],
        partition: tuple[str, int],
        found: str | None,
        read: Callable[[], Iterable[TopicId]] = lambda: (),
    ) -> TopicId:
        """As the function `followed`. `read` returns the ids of all marks of the topic. It is called when an
        id is seen for the first time."""
        if found is None:
            return followed(known, partition, None)
        topic = partition[0]
        with self._lock:
            is_known = found in self._earlier.get(topic, {})
        if not is_known:
            for each in (*read(), *known):
                self.learn(topic, each)
        with self._lock:
            ids = self._earlier.setdefault(topic, {})
            earlier = tuple(ids.setdefault(found, dict.fromkeys(ids)))
        return followed(known, partition, found, earlier, self._again)


def followed(
    known: Collection[TopicId],
    partition: tuple[str, int],
    found: str | None,
    earlier: Collection[str] = (),
    again: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> TopicId:
    """Return the id of one partition's marks once changes of the topic `found` are applied.

    `known`: the marks' ids now. `earlier`: ids that `found` has followed elsewhere. `again`: see KnownIds.
    If `found` is None (unknown), known ids stay, and none becomes a former one. Raises FormerTopic.

    >>> followed([TopicId()], ("cdc", 0), "A")
    TopicId(current='A', former=())
    >>> followed([TopicId("A")], ("cdc", 0), "B")
    TopicId(current='B', former=('A',))
    >>> followed([TopicId("B", ("A",))], ("cdc", 0), "A", again={"A": ["B"]})
    TopicId(current='A', former=('B',))
    """
    former = dict.fromkeys(one for each in known for one in each.former)
    current = dict.fromkeys(each.current for each in known if each.current is not None)
    if found is None:
        newest = [one for one in current if one not in former]
        return TopicId(newest[0] if len(newest) == 1 else None, tuple(former)[-_FORMER:])
    others = [one for one in current if one != found]
    if found in former and not (found in again and set(again[found]).issuperset(others)):
        raise former_topic(partition[0], found, others)
    before = dict.fromkeys(one for one in (*earlier, *former) if one not in others and one != found)
    before.update(dict.fromkeys(others))
    return TopicId(found, tuple(before)[-_FORMER:])


def former_topic(topic: str, found: str, later: Collection[str]) -> FormerTopic:
    """Return the error for changes of the topic id `found`. `later`: the ids that replaced it."""
    listed = ", ".join(f'"{one}"' for one in later)
    return FormerTopic(
        f"these changes are from a former topic {topic} (id {found}), but changes of the topic that replaced "
        f"it (id {', '.join(later)}) were already applied. Another worker has read the new topic: this one "
        f"must leave the partition. If {found} is the live topic again, as after a fail-over to another "
        f'cluster and back, set this in the handler\'s options: topic_again: {{"{found}": [{listed}]}}'
    )


def of_former(
    marks: Mapping[tuple[str, int], Collection[TopicId]], now: Mapping[tuple[str, int], TopicId]
) -> list[MadeAnew]:
    """Return the partitions whose marks belong to a replaced topic. `now`: partition -> its id."""
    found: list[MadeAnew] = []
    for (topic, partition), known in sorted(marks.items()):
        current = now[topic, partition].current
        left = [each.current for each in known if each.current not in (None, current)]
        if current is not None and left and left[-1] is not None:
            found.append(MadeAnew(topic, partition, left[-1], current))
    return found


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
