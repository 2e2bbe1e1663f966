"""The results of a handler run's steps, orders about one record, and the interface that reports events."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Literal, Protocol, TypeVar

from handlers import Batch, Handler, TargetUnavailable
from handlers.failures import RowsLost
from worker.attempts.limit import Limit
from worker.configuration import TableRule


class Step(Enum):
    DONE = "done"
    RETRY = "retry"
    """Again after `delay` seconds."""
    BLOCKED = "blocked"
    """The target (or dead-letter topic) is down: again after `delay` seconds, with no attempt used up."""
    HALT = "halt"
    """The change at `done` failed permanently, and the table's rule says halt."""
    ASK_AGAIN = "ask again"
    """Accepted, and the result is known after `delay` seconds. Or the handler's limit allows no call now
    (infinity). Nothing has failed."""
    STOPPED = "stopped"
    """Not finished, because the work was called off."""


ORDERED = "binlane unblock"  # begins the error of a call that a person has cancelled: no attempt is used up


class MustHalt(Exception):
    """The change can never be dead-lettered: its table halts."""


class MustWait(Exception):
    """The change cannot be dead-lettered now."""

    def __init__(self, reason: str, wait: float) -> None:
        """`wait`: seconds."""
        super().__init__(reason)
        self.wait = wait


class ProcessDied(RowsLost):
    """A child process ended while it ran this batch alone: that is a failed attempt."""


class ProcessAway(TargetUnavailable):
    """The table's child process is being started. Or it ended while it ran several batches: each is tried
    again alone, so that the one to blame is found. No attempt is used up."""

    def __init__(self, reason: str, wait: float) -> None:
        super().__init__(reason, retry_after=wait, others_go_on=True)
        self.wait = wait


class Tried(Protocol):
    """A batch that a handler gets, whole or in pieces."""

    @property
    def table(self) -> object:
        """Identifies its table; equal for all its shards."""

    @property
    def rule(self) -> TableRule: ...

    def batch(self, first: int, end: int, attempt: int) -> Batch:
        """Return the changes from `first` up to `end` as a handler gets them."""

    def borders(self, first: int, end: int) -> list[int]:
        """See `handlers.rows.borders`."""

    def ordered(self, place: int) -> tuple[int, SetAside] | None:
        """Return the order about the record of the change at `place`, and where that record's changes end."""

    def next_order(self, place: int) -> int | None:
        """Return where the first record behind `place` begins that has an order."""


class Caller(Protocol):
    """The reason for a call: one handler's run."""

    name: str
    """The handler's name."""
    handler: Handler
    done: int
    """The number of changes of the batch that are finished."""
    seconds: list[float]
    """The duration of each call."""
    limit: Limit
    accepted: bool
    """Whether the handler has the changes, and is only asked for the result."""


Batches_contra = TypeVar("Batches_contra", contravariant=True)


class Watch(Protocol[Batches_contra]):
    """Makes the calls, and is notified of events."""

    def call(self, work: Batches_contra, run: Caller, batch: Batch) -> None:
        """Call `run.handler.handle(batch)`, watched and measured, or raise Limited."""

    def failed(self, handler: str, error: BaseException) -> None:
        """One call of the handler failed."""

    def target_down(self, handler: str, error: BaseException) -> None:
        """The first call that found the handler's target down."""

    def held_up(self, work: Batches_contra, handler: str, error: BaseException) -> None:
        """The first call in a row that found that the target does not accept this table."""

    def target_up(self, handler: str, seconds: float) -> None:
        """The target is back after this many seconds."""

    def skipped(self, work: Batches_contra, handler: str, place: int, error: BaseException) -> None:
        """The change at `place` failed permanently and is skipped."""

    def dead_letter(
        self, work: Batches_contra, handler: str, place: int, error: BaseException, attempts: int
    ) -> None:
        """The change at `place` failed permanently: write its record to the dead-letter topic.

        Returns when it is written. Raises MustHalt and MustWait."""

    def paused(self, work: Batches_contra, handler: str) -> MustWait | None:
        """Return why this handler may not get the batch now, because a person has paused it; None: it may."""

    def called_off(self, work: Batches_contra) -> bool:
        """Whether nothing more of this batch may start."""


class SetAside:
    """The record is tried once more, alone. What then fails is set aside as ordered, whatever the table's
    rule says. Any thread."""

    def __init__(self, action: Literal["skip", "dead_letter"], by: str) -> None:
        """`by`: who gave the order, for logs and letters."""
        self.action: Literal["skip", "dead_letter"] = action
        self.by = by
        self._lock = threading.Lock()  # guards the attributes below
        self.changes = 0
        """The number of changes set aside so far, counted for each handler that failed."""
        self._letters: list[str] = []

    def done(self, letter: str | None = None) -> bool:
        """A change of the record, or the whole record, is set aside. `letter`: the place of its dead letter.

        Returns True for the first one."""
        with self._lock:
            self.changes += 1
            if letter is not None:
                self._letters.append(letter)
            return self.changes == 1

    @property
    def letters(self) -> list[str]:
        """The places of their dead letters."""
        with self._lock:
            return list(self._letters)
