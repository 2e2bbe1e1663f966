"""A handler that only takes its time."""

from __future__ import annotations

import time

from handlers import Batch, Handler

__all__ = ["Resting"]


class Resting(Handler):
    """Rests for so many `seconds` with each batch."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds

    def handle(self, batch: Batch) -> None:
        time.sleep(self._seconds)
