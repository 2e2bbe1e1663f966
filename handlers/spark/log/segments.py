"""The log of one table: numbered segments in a folder. Any worker may put the next one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa

from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import BrokenLog, Head, Segment, Statement, encoded, missing, read_head
from handlers.spark.log.segment_folder import MissingSegment, SegmentFolder
from handlers.spark.log.stores.interface import AlreadyThere, Files, FilesError

_LOOKS = 5
"""The most attempts to read a folder in which other workers put and remove files."""


class SegmentTaken(Exception):
    """Another worker put a segment of this number. Load the log again."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was written by another worker")


class SegmentLog:
    """The segments in one folder. Any thread may call any method. Only one thread at a time may append or
    load (with the table's lock), while others read and remove.

    Segments are numbered from 1, without gaps. A put fails if its number is taken. So if two workers have the
    same changes, the second must read again, and finds the changes in the marks of the last segment. That one
    is never removed. The others may be, oldest first. Before the first of them is removed, an empty file in
    the folder `_removed` records the used numbers. So a worker that has not looked for a while cannot put a
    number that was used and removed.

    A segment may contain a statement. Later segments are hidden from views until `append` learns that the
    statement is followed. Each segment says whether the next one is hidden, so all writers put a number at
    the same place."""

    def __init__(
        self, files: Files, folder: str, *, is_table: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        """Nothing is read before `load`. `clock`: seconds since 1970. `is_table`: the segments
        are a table themselves, and are never removed. Somebody else may remove old ones to keep it small, but
        never the last one."""
        self.folder = folder
        self._folder = SegmentFolder(files, folder, now=self._now)
        self._files = files
        self._is_table = is_table
        self._clock = clock
        # Guards the two below. Appends and loads change them, and so does the thread that removes.
        self._lock = threading.Lock()
        # Number -> segment, or the size of an unread one, ascending. Empty for a table, which Spark reads.
        self._known: dict[int, Segment | int] = {}
        self.head: Head | None = None
        """The last segment, with the log's state after it. None if the log is empty."""

    @property
    def last(self) -> int:
        """The last segment's number. 0 if the log is empty."""
        return 0 if (head := self.head) is None else head.segment.number

    @property
    def marks(self) -> Marks:
        """The table's marks, with all segments."""
        return Marks() if (head := self.head) is None else head.marks

    @property
    def is_behind(self) -> bool:
        """Whether the next segment is hidden from views."""
        return (head := self.head) is not None and head.is_behind

    @property
    def stream(self) -> str | None:
        """The stream of packs in which the log may continue after its last segment. None if it does not."""
        return None if (head := self.head) is None else head.stream

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, in order. See `after`."""
        return self.after(0)

    def after(self, number: int) -> Sequence[Segment]:
        """The segments after this one, in order.

        Segments that this object did not put are read once, when first needed. Raises BrokenLog, RuntimeError
        for a log that is a table, and what the store raises."""
        if self._is_table:
            raise RuntimeError(f"{self.folder} is a table: Spark reads its segments")
        with self._lock:
            known = [(each, segment) for each, segment in self._known.items() if each > number]
        found: list[Segment] = []
        for each, segment in known:
            if isinstance(segment, Segment):
                found.append(segment)
                continue
            try:
                read = read_head(self._files, self._folder.file(each), each, segment).segment
            except FileNotFoundError:
                if each > self._folder.see_removed():
                    raise BrokenLog(missing(self._folder.file(each))) from None
                continue
            with self._lock:
                if each in self._known:
                    self._known[each] = read
            found.append(read)
        return found

    def load(self) -> None:
        """Read the folder. Cheap: only the last file is opened, and only names are read of the others.

        Removes left-overs of crashed writers. Raises BrokenLog for a file that binlane did not write, for a
        missing one, and for an unreadable last one. Raises what the store raises."""
        for look in range(1, _LOOKS + 1):
            try:
                found = self._folder.sizes() if self._is_table else self._folder.whole_sizes()
                head = None
                if found:
                    number = max(found)
                    head = read_head(self._files, self._folder.file(number), number, found[number])
            except (BrokenLog, FileNotFoundError) as error:
                # A listing is no snapshot: while others put and remove, it may have gaps.
                if look < _LOOKS and isinstance(error, MissingSegment | FileNotFoundError):
                    continue
                if isinstance(error, FileNotFoundError):
                    raise BrokenLog(f"the log {self.folder} changes faster than it can be read") from error
                raise
            break
        with self._lock:
            old = self._known
            self._known = {}
            for number in sorted(found):
                known = old.get(number)
                is_same = isinstance(known, Segment) and known.bytes == found[number]
                if number > self._folder.removed and not self._is_table:
                    self._known[number] = known if known is not None and is_same else found[number]
            if head is not None and not self._is_table:
                self._known[head.segment.number] = head.segment
            self.head = head
        if head is not None and not head.is_behind:
            number = head.segment.number
            self._folder.show(number - 1, number)  # its writer may have died before this

    def has_grown(self) -> bool:
        """Whether another worker has put segments since. Raises what the store raises."""
        return self._folder.newest() > self.last

    def removed(self) -> int:
        """Return the last segment that any worker has removed, or begun to remove.

        Removed segments were merged before. Raises what the store raises."""
        return self._folder.see_removed()

    def append(
        self,
        table: pa.Table,
        marks: Marks,
        *,
        key: Sequence[str] = (),
        partial: bool = False,
        statement: Statement | None = None,
        shows: bool = False,
        stream: str | None = None,
    ) -> Segment:
        """Put the next segment. When this returns, it is durable and in the log.

        `table`: binlane's columns, of which the second is the source time, then the source's. `marks`: the
        table's complete marks after these rows. `statement`: to be followed when everything before it is
        merged. Later segments are hidden. `shows`: all statements are followed, so views may read this
        segment and later ones. Unmerged segments hidden before it are shown already (see `show`). `stream`:
        the log may continue after it in these packs. Raises SegmentTaken: nothing was put, or it is in the
        log already, as `load` will show. The same holds if it raises what the store raises."""
        number = self.last + 1
        is_hidden = self.is_behind
        path = self._folder.place(number, hidden=is_hidden)
        data, head = encoded(
            table,
            marks,
            number=number,
            path=path,
            key=tuple(key),
            partial=partial,
            written_ms=self._now(),
            statement=statement,
            is_behind=statement is not None or (is_hidden and not shows),
            stream=stream,
        )
        try:
            self._folder.put(number, data, hidden=is_hidden)
        except AlreadyThere:
            raise SegmentTaken(path) from None
        if not self._is_table:
            if number <= self._folder.see_removed():
                self._folder.delete(number)
                raise SegmentTaken(path)
            if is_hidden and shows:
                self._folder.show(number - 1, number)
        with self._lock:
            if not self._is_table:
                self._known[number] = head.segment
            self.head = head
        return head.segment

    def show(self, after: int, up_to: int) -> None:
        """Let views read hidden segments after a number, up to and including another: the statements before
        them are followed. Raises what the store raises."""
        self._folder.show(after, up_to)

    def remove(self, up_to: int) -> None:
        """Remove the segments up to and including this number, but not the last one, nor the last that views
        read.

        They must have been merged. Raises what the store raises. The next call tries again."""
        if self._is_table:
            raise RuntimeError(f"{self.folder} is a table: its segments are its rows")
        with self._lock:
            up_to = min(up_to, self.last - 1, self._folder.last_shown - 1)
            numbers = [number for number in self._known if number <= up_to]
        if not numbers:
            return
        self._folder.use_up(up_to)
        # Oldest first: if this stops midway, the rest has no gaps.
        for number in numbers:
            self._folder.delete(number)
            with self._lock:
                self._known.pop(number, None)

    def retire(self, up_to: int, *, after: int = 0) -> None:
        """Let readers skip the segments up to and including this number, if the store supports it. `after`:
        readers skip segments up to this one already.

        Their rows must be in the table for so long that no new query reads the table without them. They are
        removed later, when no earlier query still reads them."""
        with self._lock:
            numbers = [number for number in self._known if after < number <= up_to]
        for number in numbers:
            with suppress(FilesError):  # in some stores, other users' files cannot be changed
                self._files.retire(self._folder.file(number))

    def _now(self) -> int:
        return int(self._clock() * 1000)
