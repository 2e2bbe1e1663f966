"""A person's order about one record that blocks its table."""

from __future__ import annotations

import threading
from typing import Literal


class SetAside:
    """The record is tried once more, alone. What then fails is set aside as ordered, whatever the table's
    rule says. Any thread."""

    def __init__(self, action: Literal["skip", "dead_letter"], by: str) -> None:
        """`by`: who gave the order, for logs and letters."""
        self.action: Literal["skip", "dead_letter"] = action
        self.by = by
        self._lock = threading.Lock()  # guards the attributes below
        self._changes = 0
        self._letters: list[str] = []

    def done(self, letter: str | None = None) -> bool:
        """A change of the record, or the whole record, is set aside. `letter`: the place of its dead letter.

        Returns True for the first one."""
        with self._lock:
            self._changes += 1
            if letter is not None:
                self._letters.append(letter)
            return self._changes == 1

    @property
    def changes(self) -> int:
        """The number of changes set aside so far, counted for each handler that failed."""
        return self._changes

    @property
    def letters(self) -> list[str]:
        """The places of their dead letters."""
        with self._lock:
            return list(self._letters)
