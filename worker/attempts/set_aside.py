"""A person's order about one record that blocks its table."""

from __future__ import annotations

import threading
from typing import Literal


class SetAside:
    """The record is tried once more, alone; what of it fails then is passed over as ordered, whatever its
    table's rule says. Any thread."""

    def __init__(self, action: Literal["skip", "dead_letter"], by: str) -> None:
        """`by`: who ordered it, for logs and letters."""
        self.action: Literal["skip", "dead_letter"] = action
        self.by = by
        self._lock = threading.Lock()  # guards what follows
        self._changes = 0
        self._letters: list[str] = []

    def done(self, letter: str | None = None) -> bool:
        """A change of the record, or the whole of it, is set aside; `letter`: the place of its dead letter.

        True: it is the first."""
        with self._lock:
            self._changes += 1
            if letter is not None:
                self._letters.append(letter)
            return self._changes == 1

    @property
    def changes(self) -> int:
        """How many were set aside so far, counted for each handler that failed."""
        return self._changes

    @property
    def letters(self) -> list[str]:
        """Where their dead letters are."""
        with self._lock:
            return list(self._letters)
