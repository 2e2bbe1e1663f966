"""Answers that cost the worker a bounded share of a processor, whoever asks in a loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

SHARE = 0.05
"""The share of one processor that one kind of answer may use."""
_MOST_WAITING = 12
"""Fewer than the requests that may run at once: who waits for one of many variants leaves room for others."""


@dataclass(eq=False)
class Renderings:
    """Renders one kind of answer, and repeats the last one until the next is due. Thread-safe."""

    _: KW_ONLY
    share: float = SHARE
    clock: Callable[[], float] = time.monotonic
    processor_time: Callable[[], float] = time.thread_time
    wait: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        # Guards the fields below. One thread renders, the others wait for its answer.
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_WAITING)
        self._variant: object = None
        self._answer = b""
        self._due = float("-inf")

    def variant(self, render: Callable[[], bytes], variant: object) -> bytes | None:
        """Return one of many kinds of answer. None: as many as may wait for theirs."""
        if not self._places.acquire(blocking=False):
            return None
        try:
            return self.answer(render, variant)
        finally:
            self._places.release()

    def answer(self, render: Callable[[], bytes], variant: object = None) -> bytes:
        """Return the last answer, or a new one when it is due. A new variant waits until then.

        Raises what `render` raises, which counts as an answer."""
        with self._lock:
            early = self._due - self.clock()
            if early > 0 and variant == self._variant and self._answer:
                return self._answer
            if early > 0:
                self.wait(early)
            self._answer = b""
            began = self.processor_time()
            try:
                self._answer = render()
            finally:
                self._variant = variant
                self._due = self.clock() + (self.processor_time() - began) / self.share
            return self._answer
