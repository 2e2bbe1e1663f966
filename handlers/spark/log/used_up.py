"""Which numbers of a folder of numbered files are used up, in the names of empty files beside them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from handlers.spark.log.stores.interface import AlreadyThere, Files

_FOLDER = "_removed"
_KEPT = 2
"""Names: a listing that is made while they change holds one of them."""


class UsedUp:
    """Numbers up to the greatest that is told. Any thread. Each method raises what the store raises."""

    def __init__(self, files: Files, folder: str) -> None:
        """`folder`: of the numbered files."""
        self._files = files
        self._folder = f"{folder}/{_FOLDER}"

    def last(self) -> int:
        """0: none is used up."""
        return max(self._told(), default=0)

    def tell(self, number: int) -> int:
        """Numbers up to and including this one are used up: their files may go. Returns `last`."""
        told = self._told()
        if told and number <= told[-1]:
            return told[-1]
        with suppress(AlreadyThere):  # another worker has just put it
            self._files.put(f"{self._folder}/{number:020d}", b"")
        for old in told[: 1 - _KEPT]:
            self._files.delete(f"{self._folder}/{old:020d}")
        return number

    def _told(self) -> Sequence[int]:
        entries = self._files.list(self._folder)
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())
