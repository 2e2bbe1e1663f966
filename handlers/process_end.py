"""Callbacks for the end of the process, also if it calls `os._exit`."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from handlers.logs import get_logger

_log = get_logger("process")


class _End:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._wanted: dict[Callable[[], None], None] = {}
        self._over = False

    def add(self, do: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            if self._over:
                raise RuntimeError("the process ends")
            self._wanted[do] = None
        return lambda: self._forget(do)

    def _forget(self, do: Callable[[], None]) -> None:
        with self._lock:
            self._wanted.pop(do, None)

    def come(self) -> None:
        with self._lock:
            wanted, self._wanted, self._over = self._wanted, {}, True
        for do in wanted:
            try:
                do()
            except Exception as error:
                _log.warning("process_end_failed", error=str(error))


_end = _End()


def at_process_end(do: Callable[[], None]) -> Callable[[], None]:
    """Call `do` once when the process ends in order. The returned function cancels this. Any thread.

    Raises RuntimeError if the process is already ending."""
    return _end.add(do)


@atexit.register
def process_ends() -> None:
    """Run the callbacks. Call this before `os._exit`, which skips Python's own exit handlers."""
    _end.come()
