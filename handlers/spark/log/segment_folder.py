"""The folder of a log: its files' names, which of them exist, and which numbers are used up.

00000000000000000007.parquet            a segment, which views read
_behind/00000000000000000008.parquet    a segment after a statement, which views do not read yet.
                                        When they may, it is copied unchanged to the folder above
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
"""The folder of segments that views do not read."""
_LEFT_OVER_MS = 3_600_000
"""Age from which a temporary file belongs to nobody."""


class MissingSegment(BrokenLog):
    """A number has no file."""


class SegmentFolder:
    """Its files are named by the segments' numbers. Any thread may call any method. Each raises what the
    store raises."""

    def __init__(self, files: Files, path: str, *, now: Callable[[], int]) -> None:
        """`now`: milliseconds since 1970."""
        self.path = path
        self._files = files
        self._now = now
        self._lock = threading.Lock()  # guards all below
        self._used_up = UsedUp(files, path)
        self.removed = 0
        """The number up to which segments were removed, or are being removed by somebody, as far as this
        object knows."""
        self._shown: set[int] = set()
        self._hidden: set[int] = set()  # some of them are shown, too

    @property
    def last_shown(self) -> int:
        """The greatest number that views read, as far as this object knows. 0 if none."""
        with self._lock:
            return max(self._shown, default=0)

    def file(self, number: int) -> str:
        """The segment's path. If it is not known to exist, the path at which views would read it."""
        with self._lock:
            is_hidden = number in self._hidden and number not in self._shown
        return self.place(number, hidden=is_hidden)

    def put(self, number: int, data: bytes | pa.Buffer, *, hidden: bool) -> None:
        """Write a segment's file. Raises AlreadyThere."""
        self._files.put(self.place(number, hidden=hidden), data)
        with self._lock:
            (self._hidden if hidden else self._shown).add(number)

    def show(self, after: int, up_to: int) -> None:
        """Let views read the hidden segments after a number, up to and including another, oldest first."""
        with self._lock:
            numbers = sorted(each for each in self._hidden - self._shown if after < each <= up_to)
        if not numbers:
            return
        for number in numbers:
            # Another worker has removed a missing one.
            with suppress(AlreadyThere, FileNotFoundError):
                data = self._files.read(self.place(number, hidden=True))
                self._files.put(self.place(number, hidden=False), data)
            with self._lock:
                self._shown.add(number)
        self.see_removed()
        for number in numbers:
            if number <= self.removed:  # removed by another worker since this one looked
                self.delete(number)

    def delete(self, number: int) -> None:
        """Remove a segment's files, shown and hidden."""
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
        """Find the greatest existing number. 0 if there are no segments."""
        return max(segments_in(self._files, self.path), default=0)

    def sizes(self) -> dict[int, int]:
        """List the existing segments: number -> size of the file.

        Removes old temporary files of crashed writers. Raises BrokenLog for a file that binlane did not
        write."""
        shown, hidden = self._sizes_in(self.path), {}
        if shown.pop(0, None) is not None:
            hidden = self._sizes_in(f"{self.path}/{BEHIND}")
        with self._lock:
            self._shown, self._hidden = set(shown), set(hidden)
        return hidden | shown

    def _sizes_in(self, folder: str) -> dict[int, int]:
        """Number 0 stands for the folder of segments after a statement."""
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
        """The same, without removed segments. Completes a removal that stopped midway.

        Raises BrokenLog, and MissingSegment if a number is missing."""
        found = self.sizes()
        with self._lock:
            self.removed = 0  # somebody may have removed the whole folder, so the log starts again
        # Read after the listing, so that segments removed meanwhile are not missing.
        self.see_removed()
        for number in sorted(found):
            if number <= self.removed:
                self.delete(number)
                del found[number]
        first = self.removed + 1
        if found or self.removed:  # the last one is never removed
            for number in range(first, max(found, default=first) + 1):
                if number not in found:
                    raise MissingSegment(missing(self.file(number)))
        return found

    def see_removed(self) -> int:
        """Read up to which number segments are removed, or are being removed by somebody."""
        return self._removed_at_least(self._used_up.last())

    def use_up(self, up_to: int) -> None:
        """Record that the numbers up to this one are used up, so their segments may be removed."""
        self._removed_at_least(self._used_up.tell(up_to))

    def _removed_at_least(self, number: int) -> int:
        with self._lock:
            self.removed = max(self.removed, number)
            return self.removed

    def _is_hidden(self, folder: str, entry: Entry) -> bool:
        """Whether Spark ignores the file. Also removes a temporary file that a crash left."""
        if is_temporary(entry.name) and entry.modified_ms + _LEFT_OVER_MS < self._now():
            self._files.delete(f"{folder}/{entry.name}")
        return entry.name.startswith((".", "_"))


def segments_in(files: Files, folder: str, *, hidden: bool = True) -> dict[int, tuple[str, int, int]]:
    """Segment number -> path, number and size of its file. `hidden`: include segments that views do not
    read."""
    entries = files.list(folder)
    found = {}
    if hidden and any(entry.name == BEHIND for entry in entries):
        found = segments_in(files, f"{folder}/{BEHIND}", hidden=False)
    for entry in entries:
        if name := _NAME.fullmatch(entry.name):
            found[int(name[1])] = f"{folder}/{entry.name}", int(name[1]), entry.size
    return found


_FOLDER = "_removed"
_KEPT = 2
"""Number of names. A listing made while they change contains one of them."""


class UsedUp:
    """Numbers up to the greatest recorded are used up. Any thread. Methods raise what the store raises."""

    def __init__(self, files: Files, folder: str) -> None:
        """`folder`: of the numbered files."""
        self._files = files
        self._folder = f"{folder}/{_FOLDER}"

    def last(self) -> int:
        """The greatest number that is used up. 0 if none is."""
        return max(self._told(), default=0)

    def tell(self, number: int) -> int:
        """Record that numbers up to this one are used up, so their files may go. Returns `last`."""
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
