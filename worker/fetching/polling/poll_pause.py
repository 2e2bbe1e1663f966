"""Whether the next poll may wait because the processors have enough work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from offsets.stores import PolledKafkaStore
from worker.lanes.lanes import Lanes

_QUEUED = 10_000
_SHORT, _LONG, _FOR_AN_ANSWER = 0.02, 0.5, 0.25
_BUSY = 0.9
"""The share of one processor: Python code in handlers takes turns on one processor; waiting, sending and
writing need none. An estimate, because native threads count too. Below this share, polls never wait long."""


@dataclass(eq=False)
class PollPause:
    """Delays the next poll by 0.02 s while more than 10,000 records are queued.

    The delay is up to 0.5 s (0.25 s while a commit waits for its answer) if everything waits for the
    interpreter. More records would then speed up nothing: they leave the cache before they are handled, take
    memory and delay the commit. If calls take long whatever their size, more records make batches fuller: it
    stays 0.02 s.

    The fetcher's own. `cpu`: processor seconds that all threads of this process have used.
    """

    lanes: Lanes
    commits: PolledKafkaStore
    clock: Callable[[], float]
    cpu: Callable[[], float] = time.process_time

    def __post_init__(self) -> None:
        self._polled = 0.0
        self._cpu_then = 0.0

    def polled(self) -> None:
        """Record that a poll is over and its records have been passed on."""
        self._polled, self._cpu_then = self.clock(), self.cpu()

    @property
    def goes_on(self) -> bool:
        """Whether the next poll must wait."""
        lanes = self.lanes
        if lanes.seen.queued <= _QUEUED:
            return False
        seconds = self.clock() - self._polled
        if seconds < _SHORT:
            return True
        # While the membership is in doubt, no batch starts before a poll returns the answer to a commit.
        if seconds >= _LONG or not lanes.schedule.ready.are_many or not lanes.trusted:
            return False
        if seconds >= _FOR_AN_ANSWER and self.commits.under_way:
            return False
        return self.cpu() - self._cpu_then >= _BUSY * seconds
