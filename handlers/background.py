"""Work in the background that is given up at any moment."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """One daemon thread, from `start` to `end`."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        """`run` returns soon after `stopped` is set."""
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Start nothing more."""
        self.stopped.set()

    def ended(self, within: float | None = None) -> bool:
        """Wait up to `within` seconds, or without a limit. Return whether the thread has ended. Call `end`
        first."""
        if self._thread.ident is not None:
            self._thread.join(within)
        return not self._thread.is_alive()
