"""Threads that go on one at a time, from call to call, in an order that a seed gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from random import Random

__all__ = ["Turns"]

_SECONDS = 120


class Turns:
    """Each of the threads stops where it calls `step`, until it is its turn; others pass."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._changed = threading.Condition()  # guards all below
        self._stopped: set[int] = set()
        self._ended: set[int] = set()
        self._turn: int | None = None
        self._own = threading.local()

    def step(self) -> None:
        number: int | None = getattr(self._own, "number", None)
        if number is None:
            return
        with self._changed:
            self._stopped.add(number)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._turn == number, _SECONDS):
                raise TimeoutError
            self._turn = None
            self._stopped.remove(number)

    def run(self, works: Sequence[Callable[[], None]]) -> list[BaseException]:
        """Let all end; what they raised. Some are given few turns: they are late."""
        errors: list[BaseException] = []
        weights = [self._random.choice((1, 5, 40)) for _ in works]

        def run(number: int, work: Callable[[], None]) -> None:
            self._own.number = number
            try:
                self.step()
                work()
            except BaseException as error:
                errors.append(error)
            with self._changed:
                self._ended.add(number)
                self._changed.notify_all()

        threads = [
            threading.Thread(target=run, args=(number, work), name=f"turns-{number}")
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        while self._give(weights):
            pass
        for thread in threads:
            thread.join()
        return errors

    def _give(self, weights: Sequence[int]) -> bool:
        """One turn, once all others have stopped or ended; whether there was one to give."""
        numbers = set(range(len(weights)))
        with self._changed:
            settled = self._changed.wait_for(
                lambda: self._turn is None and self._stopped | self._ended == numbers, _SECONDS
            )
            if not settled:
                raise TimeoutError
            waiting = sorted(self._stopped - self._ended)
            if waiting:
                self._turn = self._random.choices(waiting, [weights[one] for one in waiting])[0]
                self._changed.notify_all()
            return bool(waiting)
