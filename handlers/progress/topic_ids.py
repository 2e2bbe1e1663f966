"""Which topic a mark is of: a topic that was made anew has the old one's name, but another id of Kafka's.

Its offsets begin at 0 again and have nothing to do with those before, so marks of the former topic cover
nothing of it. And what a worker still holds of the former topic, a process that was frozen for instance, must
not move the marks back: so a few of the former ids are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

_FORMER = 8
"""So many former ids are kept: who holds more of a topic that was made anew so often?"""


class FormerTopic(RuntimeError):
    """Changes of a topic after those of the topic that took its place were applied."""


class TopicId(NamedTuple):
    """Of the topic that a mark is of."""

    current: str | None = None
    """None: the mark was written without one; it takes the id of what moves it next."""
    former: tuple[str, ...] = ()
    """Of topics of this name before it, the latest last."""

    def covers(self, mark: TopicId) -> bool:
        """Whether a mark with this id counts for changes of our topic. While nobody can tell which of
        several ids is ours, none of their marks does: a change may be applied twice, none is lost."""
        return mark.current is None or mark.current == self.current


class MadeAnew(NamedTuple):
    """A partition of which the marks were of another topic of this name."""

    topic: str
    partition: int
    former_id: str
    topic_id: str


class KnownIds:
    """The ids that each topic has had in one handler's marks, of whatever table, as far as this process
    knows. Any thread.

    An id of Kafka's never comes again on its cluster: one that no mark has is of a new topic, which follows
    all that there were. So a table's first mark tells already of which topics a worker may be late with.
    """

    def __init__(self, again: Mapping[str, Collection[str]] | None = None) -> None:
        """`again`: an id that is the live topic's once more -> those that it follows."""
        self._again = again or {}
        self._lock = threading.Lock()  # guards the one below
        self._earlier: dict[str, dict[str, dict[str, None]]] = {}
        """Topic -> id -> the ids before it."""

    def learn(self, topic: str, found: TopicId) -> None:
        """What a mark tells."""
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
        """As the function `followed`; `read` tells what all marks of the topic say, and is called for an id
        that is met for the first time."""
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
    """The id of marks of one partition, once changes of the topic `found` are applied; `known`: theirs now;
    `earlier`: the ids of topics that `found` has followed elsewhere; `again`: see KnownIds.

    `found` is None where nobody could tell it: what is known stands then, and no id becomes a former one.
    Raises FormerTopic.

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
    """The error for changes of the topic with the id `found`; `later`: the ids that took its place."""
    listed = ", ".join(f'"{one}"' for one in later)
    return FormerTopic(
        f"these changes are of a former topic {topic} (id {found}), and changes of the topic that took its "
        f"place (id {', '.join(later)}) were applied already. Another worker has read the new topic: this "
        f"one has to leave the partition. Where {found} is the live topic again, as after a fail-over to "
        f"another cluster and back, say so in this handler's options: topic_again: "
        f'{{"{found}": [{listed}]}}'
    )


def of_former(
    marks: Mapping[tuple[str, int], Collection[TopicId]], now: Mapping[tuple[str, int], TopicId]
) -> list[MadeAnew]:
    """The partitions whose marks are of a topic that another has followed; `now`: partition -> its id."""
    found: list[MadeAnew] = []
    for (topic, partition), known in sorted(marks.items()):
        current = now[topic, partition].current
        left = [each.current for each in known if each.current not in (None, current)]
        if current is not None and left and left[-1] is not None:
            found.append(MadeAnew(topic, partition, left[-1], current))
    return found
