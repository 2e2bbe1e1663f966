"""The heartbeat of a thread."""

from __future__ import annotations

from collections.abc import Callable


class Beat:
    """Called by its thread in each round. Any thread may read `at`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now = clock
        self.at = clock()
        """Time of the last round, by the clock. In the future while a step may take long."""

    def __call__(self, allowance: float = 0.0) -> float:
        """Extend the watchdog's deadline by `allowance` seconds. Returns the time."""
        now = self.now()
        self.at = now + allowance
        return now
