"""The topic that a mark belongs to: a recreated topic keeps its name, but Kafka gives it another id.

Its offsets start at 0 again, so marks of the former topic cover none of its changes. A worker (for example,
a process that was frozen) may still have changes of the former topic. They must not move the marks back,
so a few former ids are kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

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
