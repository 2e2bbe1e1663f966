"""A consumer's side of the group protocol, as librdkafka's own threads do it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from ..machine.scheduler import Process, Scheduler
from .group import Coordinator, Place

__all__ = ["Membership"]

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
        self._busy = 0
        self._due = 0.0

    def soon(self, do: Callable[[], None], *, heartbeat: bool = False) -> None:
        """After the time that an answer of the broker takes; not while the process is frozen."""
        seconds = self._scheduler.random.random() * (0.3 if heartbeat else 0.01)
        # One connection: answers keep their order.
        self._due = max(self._due, self._scheduler.now + seconds)
        self._scheduler.later(self.process, self._due - self._scheduler.now, do)

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
        """The process stands still: after a session's time the group goes on without it."""
        name = self.name
        self._scheduler.at(self._scheduler.now + self._session, lambda: self._expire(name))

    def vanished(self) -> None:
        """The process is dead and has told nobody."""
        name = self.name
        if name:
            self._scheduler.at(self._scheduler.now + self._session, lambda: self._coordinator.leave(name))

    def thawed(self) -> None:
        """Its next heartbeat."""
        self.soon(self._beat)

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
        if self.process.frozen and name:
            self._coordinator.leave(name)

    def _beat(self) -> None:
        if not self._wants or not self.name or self.name in self._coordinator.members:
            return
        # Unknown by now: others may have what it owned.
        self.name = ""
        self.generation = -1
        if self.owned:
            self._tell("lost", frozenset(self.owned))
        self._again = True
        self._go_on()
