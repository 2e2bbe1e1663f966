"""What other threads want done by the one thread that may do it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Errands"]


@dataclass(slots=True)
class _Errand:
    do: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Errands:
    """One thread serves, any thread asks."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Errand] = queue.SimpleQueue()

    def ask(self, do: Callable[[], None], *, give_up: Callable[[], bool]) -> bool:
        """Have it done, and wait for that. Raises what it raises; False, when `give_up` said so before."""
        errand = _Errand(do)
        self._waiting.put(errand)
        while not errand.done.wait(0.1):
            if give_up():
                return False
        if errand.error is not None:
            raise errand.error
        return True

    def serve(self) -> None:
        """Do what was asked for since."""
        while True:
            try:
                errand = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                errand.do()
            except BaseException as error:
                errand.error = error
            errand.done.set()
