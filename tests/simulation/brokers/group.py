"""The group's coordinator on the broker: members, generations, who gets what, and what was committed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from ..machine.scheduler import Scheduler
from .logs import Topics

if TYPE_CHECKING:
    from .membership import Membership

__all__ = ["Coordinator", "Place"]

Place = tuple[str, int]


class Coordinator:
    """One group. Its answers reach a member some milliseconds later (`Membership`)."""

    def __init__(self, scheduler: Scheduler, topics: Topics) -> None:
        self._scheduler = scheduler
        self._topics = topics
        self._numbers = itertools.count(1)
        self.members: dict[str, Membership] = {}
        self._joined: dict[str, frozenset[Place]] = {}  # what those who have joined again say they own
        self.generation = 0
        self.preparing = False
        self.committed: dict[Place, tuple[int, str]] = {}
        self.refuses_first: set[int] = set()
        """Partitions whose commits it takes only of the member that committed them last."""
        self._last: dict[Place, str] = {}  # who committed it last
        self.on_commit: Callable[[str, Place, int, str], None] = lambda member, place, offset, text: None
        """Told of what it takes."""

    def join(self, member: Membership) -> str:
        """A new member, or one that joins again for the next generation."""
        name = member.name
        if not name or name not in self.members:
            name = f"{member.process.name}-{next(self._numbers)}"
            self.members[name] = member
        member.heard_at = self._scheduler.now
        self._prepare(name)
        self._joined[name] = frozenset(member.owned)
        # The first ones wait a moment for each other, as with group.initial.rebalance.delay.ms.
        self._scheduler.at(self._scheduler.now + 0.05, self._complete)
        return name

    def waits_for(self, name: str) -> bool:
        """Whether the group waits for this member to join again."""
        return self.preparing and name in self.members and name not in self._joined

    def _prepare(self, but: str = "") -> None:
        """All members are to join again."""
        if self.preparing:
            return
        self.preparing = True
        self._joined = {}
        for name, member in self.members.items():
            if name != but:
                member.soon(member.called, heartbeat=True)

    def leave(self, name: str) -> None:
        """The member told so, or its session has ended."""
        if self.members.pop(name, None) is None:
            return
        self._joined.pop(name, None)
        if self.members:
            self._prepare()
            self._scheduler.at(self._scheduler.now + 0.01, self._complete)
        else:
            self.preparing = False

    def commit(self, name: str, generation: int, offsets: dict[Place, tuple[int, str]]) -> dict[Place, int]:
        """The codes of what it refuses."""
        if name not in self.members:
            return dict.fromkeys(offsets, int(KafkaError.UNKNOWN_MEMBER_ID))
        if generation != self.generation:
            return dict.fromkeys(offsets, int(KafkaError.ILLEGAL_GENERATION))
        if any(len(text) > 4095 for _, text in offsets.values()):
            return dict.fromkeys(offsets, int(KafkaError.OFFSET_METADATA_TOO_LARGE))
        refused: dict[Place, int] = {}
        for (topic, partition), (offset, text) in offsets.items():
            if self._topics.log(topic, partition) is None:
                refused[topic, partition] = int(KafkaError.UNKNOWN_TOPIC_OR_PART)
                continue
            if partition in self.refuses_first and self._last.get((topic, partition), name) != name:
                refused[topic, partition] = int(KafkaError.REQUEST_TIMED_OUT)
                continue
            self.on_commit(name, (topic, partition), offset, text)
            self.committed[topic, partition] = (offset, text)
            self._last[topic, partition] = name
        return refused

    def look_again(self) -> None:
        """A member has seen that the topics have other partitions now."""
        if self.members:
            self._prepare()

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        for place in [each for each in self.committed if each[0] == topic]:
            del self.committed[place]

    def _complete(self) -> None:
        if not self.preparing or not self.members or self._joined.keys() != self.members.keys():
            return
        self.preparing = False
        self.generation += 1
        owned = self._joined
        shares = self._shares(owned)
        for name, member in self.members.items():
            share, generation = shares[name], self.generation
            member.heard_at = self._scheduler.now
            member.soon(lambda member=member, share=share, g=generation: member.synced(g, share))

    def _shares(self, owned: dict[str, frozenset[Place]]) -> dict[str, frozenset[Place]]:
        names = list(self.members)
        self._scheduler.random.shuffle(names)
        subscribed = {topic for member in self.members.values() for topic in member.topics}
        places = [
            (name, number)
            for name in sorted(subscribed & self._topics.by_name.keys())
            for number in range(len(self._topics.by_name[name].logs))
        ]
        cooperative = next(iter(self.members.values())).cooperative
        shares: dict[str, set[Place]] = {name: set() for name in names}
        owner = {place: name for name in names for place in sorted(owned[name])} if cooperative else {}
        quota, extra = divmod(len(places), len(names))
        homeless = []
        for place in places:
            name = owner.get(place)
            if name is not None and len(shares[name]) < quota + (1 if extra else 0):
                shares[name].add(place)
            else:
                homeless.append(place)
        for place in homeless:
            name = min(names, key=lambda each: len(shares[each]))
            shares[name].add(place)
        # What another member still has comes in the next round, when that has given it back.
        return {
            name: frozenset(place for place in share if owner.get(place, name) == name)
            for name, share in shares.items()
        }
