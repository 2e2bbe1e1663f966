"""A configured handler, and the circuit of its target: while it is down, one batch at a time tests it.

After M. Nygard, Release It!, chapter "Circuit Breaker". Opened by a handler's report, never by guessing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from handlers import Handler
from worker.attempts.limit import Limit

_ASK_AGAIN = 1.0
"""Seconds until a batch that met a running probe asks again. The probe's success wakes it earlier."""
_BEHIND = 0.01
"""Seconds by which the table whose probe failed comes after the others: tables take turns at probing."""


class Admission(NamedTuple):
    """Whether a batch may be given to the target now."""

    turn: int
    """To be returned with the outcome. Outcomes from before the last change of state show nothing new."""
    wait: float
    """0.0: yes. Otherwise the seconds until the next request is useful."""


class Refusal(NamedTuple):
    """The consequence of a call that found the target down."""

    wait: float
    """Seconds."""
    opened: bool
    """Whether this call opened the circuit."""


class Down(NamedTuple):
    reason: str
    seconds: float


class Circuit:
    """Closed: every batch passes. Open: none. Half-open: one probe runs, all others wait.

    Any thread. Requests to a closed circuit take no lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._turn = 0
        self._passing: Admission | None = Admission(0, 0.0)  # None while it is not closed
        self._probing = False
        self._failures = 0
        self._failed_at = 0.0
        self._asked = 0.0  # seconds that the target asked to wait
        self._due = 0.0
        self._since = 0.0
        self._reason = ""
        self._met: set[object] = {None}  # callers in this outage

    @property
    def closed(self) -> bool:
        return self._passing is not None

    def admit(self, delay: Callable[[int], float] | None = None, who: object = None) -> Admission:
        """Request admission before each call, and report the end of an admitted one: `failed` or `answered`.

        `delay`: the caller's own, as in `failed`. Tables with shorter delays need not wait for others'. If
        `who` has not called in this outage, only the delay after a first failure counts."""
        passing = self._passing
        if passing is not None:
            return passing
        with self._lock:
            if self._passing is not None:
                return self._passing
            wait = self._wait(delay, who)
            if wait > 0:
                return Admission(self._turn, wait)
            self._probing = True
            self._turn += 1
            return Admission(self._turn, 0.0)

    def waiting(self, delay: Callable[[int], float] | None = None, who: object = None) -> float:
        """Return the seconds until a request is useful; 0.0: now. Requests nothing. `delay`, `who`: as for
        `admit`."""
        if self._passing is not None:
            return 0.0
        with self._lock:
            return self._wait(delay, who) if self._passing is None else 0.0

    def failed(
        self, turn: int, reason: str, delay: Callable[[int], float], asked: float = 0.0, who: object = None
    ) -> Refusal:
        """The target was down for `who`. `delay(n)`: seconds to the next probe after n failures in a row,
        other callers' first failures not counted. At least `asked`, which the target itself requested."""
        with self._lock:
            now = self._clock()
            if turn != self._turn:
                # The call started before the circuit opened, or closed again: already reported.
                wait = max(delay(1), asked) if self._passing is not None else max(0.0, self._due - now)
                return Refusal(wait, False)
            opened = self._passing is not None
            if opened:
                self._since = now
                self._failures = 0
                self._met = {None}
            self._failures += opened or who in self._met  # else ten tables' first calls make all wait long
            self._met.add(who)
            self._passing = None
            self._probing = False
            self._turn += 1
            self._reason = reason
            wait = max(delay(self._failures), asked)
            self._failed_at, self._asked, self._due = now, asked, now + wait
            return Refusal(wait + _BEHIND, opened)

    def answered(self, turn: int) -> float | None:
        """The target processed the call, with any result. If this ended an outage, returns its seconds."""
        if self._passing is not None:
            return None
        with self._lock:
            if self._passing is not None or not self._probing or turn != self._turn:
                return None
            self._probing = False
            self._turn += 1
            self._passing = Admission(self._turn, 0.0)
            return self._clock() - self._since

    def not_called(self, turn: int) -> None:
        """The admitted call was not made."""
        with self._lock:
            self._probing = self._probing and turn != self._turn

    def told(self, reason: str | None) -> None:
        """Report a result of independent checks of the target. None: it answers."""
        turn, _ = self.admit(lambda _failures: 0.0)
        if reason is None:
            self.answered(turn)
        else:
            self.failed(turn, reason, lambda _failures: 0.0)

    def _wait(self, delay: Callable[[int], float] | None = None, who: object = None) -> float:
        if self._probing:
            return _ASK_AGAIN
        due = self._due
        if delay is not None:
            failures = self._failures if who in self._met else 1
            due = min(due, self._failed_at + max(delay(failures), self._asked))
        return max(0.0, due - self._clock())

    def hurry(self) -> None:
        """Let the next batch probe at once, unless a probe already runs."""
        with self._lock:
            self._due = min(self._due, self._clock())

    def down(self) -> Down | None:
        """Return what is known of the present outage, or None."""
        with self._lock:
            if self._passing is not None:
                return None
            return Down(self._reason, self._clock() - self._since)


@dataclass(slots=True, eq=False)
class BoundHandler:
    """A configured handler with its object, or with one object per lane (more, if lanes were added)."""

    name: str
    objects: tuple[Handler, ...]
    circuit: Circuit = field(default_factory=Circuit)
    """The target's circuit, shared by all tables of the handler."""
    limit: Limit = field(default_factory=Limit)
    elsewhere: Any = None
    """The child processes that run it (see worker/processes). None: the worker's own threads do."""

    def of(self, lane: int) -> Handler:
        return self.objects[lane if len(self.objects) > 1 else 0]
