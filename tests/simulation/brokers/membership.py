"""A consumer's side of the group protocol, as librdkafka's own threads do it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from ..machine.scheduler import Process, Scheduler
from .group import Coordinator, Place

__all__ = ["Membership"]

_HEARTBEAT_SECONDS = 3.0
_CHECK_SECONDS = 1.0
"""How late librdkafka looks whether a session has passed in which the coordinator answered nothing."""

Kind = Literal["assign", "revoke", "lost", "left"]


class Membership:
    """Joins, is called to join again, gets its share. What the program must be told waits in `told` until it
    polls; `done` says that its callback is over."""

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        coordinator: Coordinator,
        *,
        cooperative: bool,
        session: float,
        wakes: Callable[[], None],
    ) -> None:
        self.process = process
        self.cooperative = cooperative
        self.topics: set[str] = set()
        self.name = ""
        self.generation = -1
        self.owned: set[Place] = set()
        self.told: deque[tuple[Kind, frozenset[Place]]] = deque()
        self._scheduler = scheduler
        self._coordinator = coordinator
        self._session = session
        self._wakes = wakes
        self._wants = False
        self._again = False  # it is to join as soon as what waits in `told` is done
        self._has_lost = False
        self._busy = 0
        self._due = 0.0
        self._unheard = False
        self._held: list[Callable[[], None]] = []  # what goes between the two of them when that is over
        self._silences = 0
        self.heard_at = 0.0
        """When the coordinator heard of it for certain; its heartbeats come after that."""

    def soon(self, do: Callable[[], None], *, heartbeat: bool = False) -> None:
        """After the time that an answer of the broker takes; not while the process is frozen."""
        seconds = self._scheduler.random.random() * (0.3 if heartbeat else 0.01)
        # One connection: answers keep their order.
        self._due = max(self._due, self._scheduler.now + seconds)
        self._scheduler.later(self.process, self._due - self._scheduler.now, lambda: self.when_heard(do))

    def when_heard(self, do: Callable[[], None]) -> None:
        """Now, or when the coordinator is in reach again."""
        if self._unheard:
            self._held.append(do)
        else:
            do()

    @property
    def is_heard(self) -> bool:
        return not self._unheard

    def subscribe(self, topics: set[str]) -> None:
        self.topics = topics
        self._wants = True
        self.soon(self._join)

    def unsubscribe(self) -> None:
        """Give back everything, then leave."""
        self._wants = self._again = False
        if self.owned:
            self._tell("revoke", frozenset(self.owned))
        self._tell("left", frozenset())

    def frozen(self) -> None:
        """The process stands still: a session after its last heartbeat the group goes on without it."""
        self._last_heartbeat()

    def silenced(self) -> None:
        """The coordinator is out of reach, whether other brokers are or not: the group goes on without it as
        well, and librdkafka gives its partitions up by itself, a little later."""
        if self._unheard:
            return
        self._unheard = True
        self._silences += 1
        number, last = self._silences, self._last_heartbeat()
        end = last + self._session + self._scheduler.random.random() * _CHECK_SECONDS
        self._scheduler.later(self.process, end - self._scheduler.now, lambda: self._give_up(number))

    def heard_again(self) -> None:
        """What was sent meanwhile arrives when TCP tries it again."""
        if not self._unheard:
            return
        self._unheard = False
        held, self._held = self._held, []
        for each in held:
            self.soon(each, heartbeat=True)
        self.soon(self._beat, heartbeat=True)

    def _last_heartbeat(self) -> float:
        """When the last one came that the coordinator hears. It waits a session for the next."""
        name, now, random = self.name, self._scheduler.now, self._scheduler.random
        last = self.heard_at = max(
            self.heard_at, now - random.random() * min(_HEARTBEAT_SECONDS, self._session / 2)
        )
        self._scheduler.at(max(now, last + self._session), lambda: self._expire(name))
        return last

    def _give_up(self, number: int) -> None:
        """A session went by without an answer. Not while it is joining."""
        if self._unheard and number == self._silences and self._wants and self.name and not self._busy:
            self._lost()

    def vanished(self) -> None:
        """The process is dead and has told nobody."""
        name = self.name
        if name:
            self._scheduler.at(self._scheduler.now + self._session, lambda: self._coordinator.leave(name))

    def thawed(self) -> None:
        """Its next heartbeat."""
        self.soon(self._beat)

    def refused(self) -> None:
        """A commit's answer tells that it is no member."""
        self._beat()

    def called(self) -> None:
        """The coordinator wants all members to join again."""
        if not self._wants or not self._coordinator.waits_for(self.name):
            return
        self._again = True
        self._go_on()

    def synced(self, generation: int, share: frozenset[Place]) -> None:
        """The coordinator's answer: this generation, this share."""
        if not self._wants or self.name not in self._coordinator.members:
            return
        self.generation = generation
        gone = frozenset(self.owned - share)
        if self.cooperative and gone:
            self._tell("revoke", gone)
            self._again = True
        self._tell("assign", frozenset(share - self.owned) if self.cooperative else share)

    def done(self, kind: Kind, places: frozenset[Place]) -> None:
        """The program's callback is over."""
        self._busy -= 1
        if kind == "assign":
            self.owned |= places
        elif kind == "left":
            if self._unheard:
                self.vanished()
            else:
                self._coordinator.leave(self.name)
            self.name = ""
        else:
            self.owned -= places
        self._go_on()

    def _tell(self, kind: Kind, places: frozenset[Place]) -> None:
        self._busy += 1
        self.told.append((kind, places))
        self._wakes()

    def _go_on(self) -> None:
        if self._has_lost and not self._busy:
            self._has_lost = False
            if self.owned:
                self._tell("lost", frozenset(self.owned))
        if self._again and not self._busy and self._wants:
            if not self.cooperative and self.owned:  # also what it was given while it was called
                self._tell("revoke", frozenset(self.owned))
                return
            self._again = False
            self.soon(self._join)

    def _join(self) -> None:
        if self._busy:
            self._again = True
        elif self._wants:
            self.name = self._coordinator.join(self)

    def _expire(self, name: str) -> None:
        silent = self.process.frozen or self._unheard or name != self.name
        if not silent or not name:
            return
        due = self.heard_at + self._session
        if due > self._scheduler.now and name == self.name:
            self._scheduler.at(due, lambda: self._expire(name))
        else:
            self._coordinator.leave(name)

    def _beat(self) -> None:
        if not self._wants or not self.name:
            return
        if self.name in self._coordinator.members:
            self.heard_at = self._scheduler.now
            return
        self._lost()

    def _lost(self) -> None:
        """Others may have what it owned, and what it is just told of."""
        self.name = ""
        self.generation = -1
        self._has_lost = self._again = True
        self._go_on()
