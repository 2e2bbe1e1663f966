"""A handler object between `open` and `close`: which of its calls must not overlap."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from handlers import Handler
from handlers.hanging_calls import Bounded

Told = dict[str, Any] | None


class _Asking:
    """The calls of one handler's `status`: one at a time. A hanging call is waited for once. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._call: Bounded[Told] | None = None
        self._begun = 0.0
        self._late = False
        self._last: Told = None

    def begin(self, ask: Callable[[], Told]) -> None:
        with self._lock:
            if self._call is None:
                self._call, self._begun, self._late = Bounded("status", ask), time.monotonic(), False

    def answer(self, end: float) -> Told:
        """Return its answer by `end`, or its last answer with an error that it is late."""
        call = self._call
        if call is None:  # another thread has taken the answer
            return self._last
        try:
            told = call.within(0.0 if self._late else end - time.monotonic())
        except TimeoutError as error:
            self._late = True
            place = str(error).partition("; ")[2]
            late = f"its status has not answered for {time.monotonic() - self._begun:.0f} s; {place}"
            return (self._last or {}) | {"error": late}
        with self._lock:
            if self._call is call:
                self._call, self._last = None, told
        return told


class _Ending:
    """`close` waits for each running `release`. None starts after it. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._releases = 0
        self._closed = False

    def release(self, do: Callable[[], None]) -> None:
        with self._changed:
            if self._closed:
                return
            self._releases += 1
        try:
            do()
        finally:
            with self._changed:
                self._releases -= 1
                self._changed.notify_all()

    def close(self, do: Callable[[], None]) -> None:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._releases)
        do()


@dataclass(frozen=True, slots=True, eq=False)
class OpenHandler:
    """Made when its `open` has returned."""

    name: str
    type: str
    """As in the configuration."""
    lane: int | None
    """For an object that serves one lane."""
    handler: Handler
    asking: _Asking = field(default_factory=_Asking)
    _ending: _Ending = field(default_factory=_Ending)

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Notify the handler that these partitions are revoked. Raises what it raises."""
        self._ending.release(lambda: self.handler.release(partitions))

    def close(self) -> None:
        """Close the handler after any running `release`, however long that takes. Raises what it raises."""
        self._ending.close(self.handler.close)
