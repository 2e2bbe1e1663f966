"""The folder of a log: how its files are named, which are there, and which numbers are used up.

00000000000000000007.parquet            a segment, which views read
_behind/00000000000000000008.parquet    one that they do not: it is behind a statement. It is copied to
                                        its place above, byte for byte, when they may
_removed/00000000000000000005           an empty file: the numbers up to this one are used up"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from handlers.spark.log.segment_file import BrokenLog, missing
from handlers.spark.log.stores.interface import AlreadyThere, Entry, Files, is_temporary

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"(\d{20})\.parquet")
BEHIND = "_behind"
"""The folder of what views do not read."""
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
        self._lock = threading.Lock()  # guards all below
        self._used_up = UsedUp(files, path)
        self._removed = 0
        self._shown: set[int] = set()
        self._hidden: set[int] = set()  # some of them shown, too

    @property
    def removed(self) -> int:
        """The segments up to and including this number were removed, or somebody has begun to, as far as this
        object knows."""
        return self._removed

    @property
    def last_shown(self) -> int:
        """The greatest number that views read, as far as this object knows; 0: none."""
        with self._lock:
            return max(self._shown, default=0)

    def file(self, number: int) -> str:
        """The segment's path; of one that is not known to be there, where views would read it."""
        with self._lock:
            is_hidden = number in self._hidden and number not in self._shown
        return self.place(number, hidden=is_hidden)

    def put(self, number: int, data: bytes | pa.Buffer, *, hidden: bool) -> None:
        """Put a segment's file. Raises AlreadyThere."""
        self._files.put(self.place(number, hidden=hidden), data)
        with self._lock:
            (self._hidden if hidden else self._shown).add(number)

    def show(self, after: int, up_to: int) -> None:
        """Let views read the hidden segments beyond a number, up to and including another, oldest first."""
        with self._lock:
            numbers = sorted(each for each in self._hidden - self._shown if after < each <= up_to)
        if not numbers:
            return
        for number in numbers:
            # One that is gone was removed by another worker.
            with suppress(AlreadyThere, FileNotFoundError):
                data = self._files.read(self.place(number, hidden=True))
                self._files.put(self.place(number, hidden=False), data)
            with self._lock:
                self._shown.add(number)
        self.see_removed()
        for number in numbers:
            if number <= self._removed:  # by another worker, since this one looked
                self.delete(number)

    def delete(self, number: int) -> None:
        """Remove a segment's file, or both."""
        with self._lock:
            is_hidden = number in self._hidden
        self._files.delete(self.place(number, hidden=False))
        if is_hidden:
            self._files.delete(self.place(number, hidden=True))
        with self._lock:
            self._shown.discard(number)
            self._hidden.discard(number)

    def place(self, number: int, *, hidden: bool) -> str:
        """Where a segment's file is put."""
        folder = f"{self.path}/{BEHIND}" if hidden else self.path
        return f"{folder}/{number:020d}.parquet"

    def newest(self) -> int:
        """Look for the greatest number that is there; 0: there is none."""
        entries = list(self._files.list(self.path))
        if any(entry.name == BEHIND for entry in entries):
            entries += self._files.list(f"{self.path}/{BEHIND}")
        names = (_NAME.fullmatch(entry.name) for entry in entries)
        return max((int(name[1]) for name in names if name is not None), default=0)

    def sizes(self) -> dict[int, int]:
        """Look which segments are there: the size of each file by its number.

        Old temporary files of crashed writers are removed. Raises BrokenLog for a file that is none of ours.
        """
        shown, hidden = self._sizes_in(self.path), {}
        if shown.pop(0, None) is not None:
            hidden = self._sizes_in(f"{self.path}/{BEHIND}")
        with self._lock:
            self._shown, self._hidden = set(shown), set(hidden)
        return hidden | shown

    def _sizes_in(self, folder: str) -> dict[int, int]:
        """With number 0 for the folder of those that are behind a statement."""
        found: dict[int, int] = {}
        for entry in self._files.list(folder):
            name = _NAME.fullmatch(entry.name)
            if name is not None and not entry.is_folder:
                found[int(name[1])] = entry.size
            elif entry.name == BEHIND:
                found[0] = 0
            elif not self._is_hidden(folder, entry):
                raise BrokenLog(
                    f"{folder}/{entry.name} is not a segment: move it away. This folder is only for "
                    "binlane's files, and readers would treat it as a part of the table"
                )
        return found

    def whole_sizes(self) -> dict[int, int]:
        """The same, of those that are not removed; what a removal left that stopped midway is removed.

        Raises BrokenLog, and MissingSegment where there is a hole."""
        found = self.sizes()
        with self._lock:
            self._removed = 0  # somebody may have removed the whole folder, and the log begins anew
        # Looked at after the listing: what is removed meanwhile is no hole then.
        self.see_removed()
        for number in sorted(found):
            if number <= self._removed:
                self.delete(number)
                del found[number]
        first = self._removed + 1
        if found or self._removed:  # the last one is never removed
            for number in range(first, max(found, default=first) + 1):
                if number not in found:
                    raise MissingSegment(missing(self.file(number)))
        return found

    def see_removed(self) -> None:
        """Look which numbers are used up."""
        self._removed_at_least(self._used_up.last())

    def use_up(self, up_to: int) -> None:
        """Write down that the numbers up to and including this one are used up: their segments may go."""
        self._removed_at_least(self._used_up.tell(up_to))

    def _removed_at_least(self, number: int) -> None:
        with self._lock:
            self._removed = max(self._removed, number)

    def _is_hidden(self, folder: str, entry: Entry) -> bool:
        """Whether Spark passes it over. A temporary file that a crash left is removed in passing."""
        if is_temporary(entry.name) and entry.modified_ms + _LEFT_OVER_MS < self._now():
            self._files.delete(f"{folder}/{entry.name}")
        return entry.name.startswith((".", "_"))


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
