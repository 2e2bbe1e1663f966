"""The folder of a log: how its files are named, which are there, and which numbers are used up."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from handlers.spark.log.segment_file import BrokenLog, missing
from handlers.spark.log.stores.interface import AlreadyThere, Entry, Files, is_temporary

__all__ = ["MissingSegment", "SegmentFolder"]

_NAME = re.compile(r"(\d{20})\.parquet")
_REMOVED = "_removed"
_LEFT_OVER_MS = 3_600_000
"""A temporary file so old is nobody's any more."""


class MissingSegment(BrokenLog):
    """A number is not there."""


class SegmentFolder:
    """Its files are named by the segments' numbers. Any thread may call any method; each raises what the
    store raises."""

    def __init__(self, files: Files, path: str, *, now: Callable[[], int]) -> None:
        """`now`: milliseconds since 1970."""
        self.path = path
        self._files = files
        self._now = now
        self._lock = threading.Lock()  # guards the one below
        self._removed = 0

    @property
    def removed(self) -> int:
        """The segments up to and including this number were removed, or somebody has begun to, as far as this
        object knows."""
        return self._removed

    def file(self, number: int) -> str:
        """The segment's path."""
        return f"{self.path}/{number:020d}.parquet"

    def newest(self) -> int:
        """Look for the greatest number that is there; 0: there is none."""
        names = (_NAME.fullmatch(entry.name) for entry in self._files.list(self.path))
        return max((int(name[1]) for name in names if name is not None), default=0)

    def sizes(self) -> dict[int, int]:
        """Look which segments are there: the size of each file by its number.

        Old temporary files of crashed writers are removed. Raises BrokenLog for a file that is none of ours.
        """
        found: dict[int, int] = {}
        for entry in self._files.list(self.path):
            name = _NAME.fullmatch(entry.name)
            if name is not None and not entry.is_folder:
                found[int(name[1])] = entry.size
            elif not self._is_hidden(entry):
                raise BrokenLog(
                    f"{self.path}/{entry.name} is no segment: move it away. This folder is for what "
                    f"binlane puts there, and readers would take it for a part of the table"
                )
        return found

    def whole_sizes(self) -> dict[int, int]:
        """The same, of those that are not removed; what a removal left that stopped midway is removed.

        Raises BrokenLog, and MissingSegment where there is a hole.
        """
        found = self.sizes()
        with self._lock:
            self._removed = 0  # somebody may have removed the whole folder, and the log begins anew
        # Looked at after the listing: what is removed meanwhile is no hole then.
        self.see_removed()
        for number in sorted(found):
            if number <= self._removed:
                self._files.delete(self.file(number))
                del found[number]
        first = self._removed + 1
        if found or self._removed:  # the last one is never removed
            for number in range(first, max(found, default=first) + 1):
                if number not in found:
                    raise MissingSegment(missing(self.file(number)))
        return found

    def see_removed(self) -> Sequence[int]:
        """Look which numbers are used up; returns all that are written down."""
        entries = self._files.list(f"{self.path}/{_REMOVED}")
        numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
        with self._lock:
            self._removed = max([self._removed, *numbers])
        return numbers

    def use_up(self, up_to: int) -> None:
        """Write down that the numbers up to and including this one are used up: their segments may go."""
        with suppress(AlreadyThere):  # put by an earlier attempt, or by another worker
            self._files.put(f"{self.path}/{_REMOVED}/{up_to:020d}", b"")
        written = self.see_removed()
        for number in written:
            if number < max(written):
                self._files.delete(f"{self.path}/{_REMOVED}/{number:020d}")

    def _is_hidden(self, entry: Entry) -> bool:
        """Whether Spark passes it over. A temporary file that a crash left is removed in passing."""
        if is_temporary(entry.name) and entry.modified_ms + _LEFT_OVER_MS < self._now():
            self._files.delete(f"{self.path}/{entry.name}")
        return entry.name.startswith((".", "_"))
