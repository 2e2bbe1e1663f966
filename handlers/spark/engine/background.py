"""Background work of a lake, which can be stopped at any moment."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Background(ABC):
    """One daemon thread, from `start` to `end`."""

    def __init__(self, thread_name: str) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Begin no more work."""
        self._stopped.set()

    def ended(self, within: float) -> bool:
        """After `end`: wait up to `within` seconds for running work. Returns whether it is done."""
        if self._thread.ident is not None:
            self._thread.join(within)
        return not self._thread.is_alive()

    @abstractmethod
    def _run(self) -> None:
        """The thread's work. Must return soon after `_stopped` is set."""
