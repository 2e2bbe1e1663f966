"""Whether the next poll may wait because the processors have enough to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from offsets.stores import PolledKafkaStore
from worker.lanes.lanes import Lanes

_QUEUED = 10_000
_SHORT, _LONG, _FOR_AN_ANSWER = 0.02, 0.5, 0.25
_BUSY = 0.9
"""Of a processor: what handlers do in Python takes turns on one; waiting, sending and writing take none. An
estimate, as native threads count, too; a process that gets less than that is never put off for long."""


@dataclass(eq=False)
class PollPause:
    """With more than 10,000 records queued the next poll is put off by 0.02 s.

    By up to 0.5 s (0.25 s while a commit waits for its answer) if more records would make nobody quicker,
    since the interpreter is what all wait for: what is queued for long leaves the cache before it is handled,
    takes memory and holds the commit back. Where calls take long whatever they hold, more records give them
    fuller batches, and it stays at 0.02 s.

    The fetcher's own. `cpu`: seconds of a processor that this process took so far, of all threads.
    """

    lanes: Lanes
    commits: PolledKafkaStore
    clock: Callable[[], float]
    cpu: Callable[[], float] = time.process_time

    def __post_init__(self) -> None:
        self._polled = 0.0
        self._cpu_then = 0.0

    def polled(self) -> None:
        """A poll is over, and what it brought has been passed on."""
        self._polled, self._cpu_then = self.clock(), self.cpu()

    @property
    def goes_on(self) -> bool:
        """Whether the next poll is to wait."""
        lanes = self.lanes
        if lanes.seen.queued <= _QUEUED:
            return False
        seconds = self.clock() - self._polled
        if seconds < _SHORT:
            return True
        # While the membership is in doubt no batch begins before a poll brings the answer to a commit.
        if seconds >= _LONG or not lanes.schedule.ready.are_many or not lanes.trusted:
            return False
        if seconds >= _FOR_AN_ANSWER and self.commits.under_way:
            return False
        return self.cpu() - self._cpu_then >= _BUSY * seconds
