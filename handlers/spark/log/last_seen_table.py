"""Records what a log's table was last seen to contain, in the names of empty files beside the segments.

Delta removes the notes of old commits. Then only the first segment of the last merge is known. And a table
that was restored, replaced or removed looks like one that never contained more. Files in the folder `_table`:

- `00000000000000000005-00000000000000000008`: the table's newest merge contained segments 5 to 8
- `left-00000000000000000009`: records up to 9 were about a table that DDL has dropped or renamed
- `followed-00000000000000000007`: the statements in the log up to this segment are followed"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from handlers.spark.log.stores.interface import AlreadyThere, Files

FOLDER = "_table"
_HELD = re.compile(r"(\d{20})-(\d{20})")
_LEFT = re.compile(r"left-(\d{20})")
_FOLLOWED = re.compile(r"followed-(\d{20})")


@dataclass(frozen=True, slots=True)
class Held:
    """The segments of the newest merge into a table. The table contains all up to `last`."""

    first: int = 0
    last: int = 0
    """0 if the table contains none, or does not exist."""
    marks: Mapping[tuple[str, int], tuple[int, int]] | None = field(default=None, compare=False)
    """(topic, partition) -> (offset, index) of the last of these changes, if the merge's note is there."""


class Told(NamedTuple):
    """The record about a log's table."""

    held: Held = Held()
    """What the table was last seen to contain, if it has not left since."""
    left: int = 0
    """Segments up to this one were merged into tables that have left."""
    followed: int = 0
    """Statements in the log up to this segment are followed."""


class ToldHeld:
    """The records beside one log. Raises what the store raises."""

    def __init__(self, files: Files, log_folder: str) -> None:
        self._files = files
        self._folder = f"{log_folder}/{FOLDER}"

    def look(self) -> Told:
        return _told(self._names())

    def begun_with(self, first: int) -> Held:
        """Return the commit that began with this segment, also of a table that has left and returned. Empty
        if it was not recorded."""
        found = [held for held in _all_held(self._names()) if held.first == first]
        return max(found, key=lambda held: held.last, default=Held())

    def tell(self, held: Held) -> None:
        """Record that the table contains this."""
        self._put(f"{held.first:020d}-{held.last:020d}")

    def tell_left(self, last: int) -> None:
        """The table is about to be dropped or renamed. Record that it contains no segment after `last`."""
        self._put(f"left-{last:020d}")

    def tell_followed(self, number: int) -> None:
        """Record that the statement in this segment is followed, and all before it."""
        self._put(f"followed-{number:020d}")

    def _put(self, name: str) -> None:
        with suppress(AlreadyThere):
            self._files.put(f"{self._folder}/{name}", b"")
        names = self._names()
        held, left, followed = _told(names)
        for other in names:
            if (old := _HELD.fullmatch(other)) and left < int(old[2]) < held.last:
                self._files.delete(f"{self._folder}/{other}")
            if (old := _LEFT.fullmatch(other)) and int(old[1]) < left:
                self._files.delete(f"{self._folder}/{other}")
            if (old := _FOLLOWED.fullmatch(other)) and int(old[1]) < followed:
                self._files.delete(f"{self._folder}/{other}")

    def _names(self) -> Sequence[str]:
        return [entry.name for entry in self._files.list(self._folder)]


def _all_held(names: Iterable[str]) -> list[Held]:
    return [Held(int(each[1]), int(each[2])) for name in names if (each := _HELD.fullmatch(name))]


def _told(names: Sequence[str]) -> Told:
    left = max((int(each[1]) for name in names if (each := _LEFT.fullmatch(name))), default=0)
    beyond = [held for held in _all_held(names) if held.last > left]
    followed = max((int(each[1]) for name in names if (each := _FOLLOWED.fullmatch(name))), default=0)
    return Told(max(beyond, key=lambda held: held.last, default=Held()), left, followed)
