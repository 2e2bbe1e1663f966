"""When Python collects cyclic garbage: seldom, and then everything."""

from __future__ import annotations

import gc
from collections.abc import Callable

_LOOK_SECONDS = 60.0


class Garbage:
    """Millions of records pass through, and hardly any is in a cycle, so Python's usual frequent collections
    cost more than they find. But revoked partitions are in cycles. Their data (flags in mapped files, each
    with its handle) stays until a full collection."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = clock()

    def settle(self) -> None:
        """Treat all present objects as permanent: they need not be examined again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self._due = self._clock() + _LOOK_SECONDS

    def look(self) -> None:
        """Collect everything once a minute: 0.1 ms for a thousand objects. Call this often."""
        if self._clock() >= self._due:
            self._due = self._clock() + _LOOK_SECONDS
            gc.collect()
