"""What a handler's run answers at each step, and whom it tells what happens on the way."""

from __future__ import annotations

from enum import Enum
from typing import Protocol, TypeVar

from handlers import Batch, Handler
from worker.attempts.set_aside import SetAside
from worker.configuration import TableRule


class Step(Enum):
    DONE = "done"
    RETRY = "retry"
    """Again after `delay` seconds."""
    BLOCKED = "blocked"
    """The target (or the dead-letter topic) is down: again after `delay` seconds, no attempt used up."""
    HALT = "halt"
    """The change at `done` failed for good, and the table's rule says halt."""
    ASK_AGAIN = "ask again"
    """Taken, and to be known after `delay` seconds: nothing has failed."""
    STOPPED = "stopped"
    """Not done, because the work was called off."""


class MustHalt(Exception):
    """The change cannot be dead-lettered, and never will be: its table halts."""


class MustWait(Exception):
    """The change cannot be dead-lettered now."""

    def __init__(self, reason: str, wait: float) -> None:
        """`wait`: seconds."""
        super().__init__(reason)
        self.wait = wait


class Tried(Protocol):
    """A batch that a handler is given, whole or in pieces."""

    @property
    def table(self) -> object:
        """The same for all its shards."""
        ...

    @property
    def rule(self) -> TableRule:
        """Its table's."""
        ...

    def batch(self, first: int, end: int, attempt: int) -> Batch:
        """The changes from `first` up to `end` as a handler sees them."""
        ...

    def borders(self, first: int, end: int) -> list[int]:
        """See `handlers.rows.borders`."""
        ...

    def ordered(self, place: int) -> tuple[int, SetAside] | None:
        """What is ordered about the record of the change at `place`, and where that record's changes end."""
        ...


class Caller(Protocol):
    """What makes a call necessary: one handler's run."""

    name: str
    """The handler's."""
    handler: Handler
    done: int
    """How many changes of the batch are through."""
    seconds: list[float]
    """How long each call took."""


Batches_contra = TypeVar("Batches_contra", contravariant=True)


class Watch(Protocol[Batches_contra]):
    """Who makes the calls, and is told what happens on the way."""

    def call(self, work: Batches_contra, run: Caller, batch: Batch) -> None:
        """`run.handler.handle(batch)`, watched and measured."""

    def failed(self, handler: str, error: BaseException) -> None:
        """One call of the handler failed."""

    def target_down(self, handler: str, error: BaseException) -> None:
        """The first call that found the handler's target down."""

    def held_up(self, work: Batches_contra, handler: str, error: BaseException) -> None:
        """The first call in a row that found that the target does not take this table."""

    def target_up(self, handler: str, seconds: float) -> None:
        """It is back after so many seconds."""

    def skipped(self, work: Batches_contra, handler: str, place: int, error: BaseException) -> None:
        """The change at `place` failed for good and is passed over."""

    def dead_letter(
        self, work: Batches_contra, handler: str, place: int, error: BaseException, attempts: int
    ) -> None:
        """The change at `place` failed for good: its record is to be written to the dead-letter topic.

        Returns when it is there. Raises MustHalt and MustWait."""

    def called_off(self, work: Batches_contra) -> bool:
        """Whether nothing more of this batch may begin."""
        ...
