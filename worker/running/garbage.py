"""When Python looks for garbage in circles: seldom, and of all that was made since the start."""

from __future__ import annotations

import gc
from collections.abc import Callable

_LOOK_SECONDS = 60.0


class Garbage:
    """Millions of records pass through, and hardly one is in a circle: to look through them as often as
    Python does by itself costs more than it finds. But partitions that left are in circles, and what they
    hold (flags in mapped files, each with its handle) stays until all is looked through."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = clock()

    def settle(self) -> None:
        """What was made until now stays, and need not be looked at again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self._due = self._clock() + _LOOK_SECONDS

    def look(self) -> None:
        """To be called often; once a minute it looks through all: 0.1 ms for a thousand objects."""
        if self._clock() >= self._due:
            self._due = self._clock() + _LOOK_SECONDS
            gc.collect()
