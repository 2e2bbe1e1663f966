"""The log of one table: numbered segments in a folder, of which any worker may put the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa

from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import BrokenLog, Head, Segment, encoded, missing, read_head
from handlers.spark.log.segment_folder import MissingSegment, SegmentFolder
from handlers.spark.log.statement import Statement
from handlers.spark.log.stores.interface import AlreadyThere, Files, FilesError

_LOOKS = 5
"""At a folder in which other workers put and remove meanwhile."""


class SegmentTaken(Exception):
    """Another worker put a segment of this number: load the log, and look again what it holds."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was written by another worker")


class SegmentLog:
    """The segments in one folder. Any thread may call any method; appends and loads are to be called by one
    at a time (the table's lock), while others read and remove.

    Segments are numbered from 1, without gaps. A put fails when its number is taken, so of two workers that
    hold the same changes the second must look again, and finds them in the marks of the last segment. That
    one is never removed. The others may be, oldest first; which numbers are used up is then told by the name
    of an empty file in the folder `_removed`, written before the first of them goes: so a worker that had
    not looked for a while cannot put a number that was used and removed long ago.

    A segment may hold a statement. What is put behind it is hidden from views, until `append` is told that
    the statement is followed: each segment says of the next whether it is hidden, so all writers put a number
    at the same place."""

    def __init__(
        self,
        files: Files,
        folder: str,
        *,
        is_table: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is read before `load`. `clock`: seconds since 1970. `is_table`: see `for_table`."""
        self._folder = SegmentFolder(files, folder, now=self._now)
        self._files = files
        self._is_table = is_table
        self._clock = clock
        # Guards the two below: appends and loads change them, and so does the thread that removes.
        self._lock = threading.Lock()
        # By number, ascending; the size of one not yet looked into. Nothing of a table: nobody asks for it.
        self._known: dict[int, Segment | int] = {}
        self._head: Head | None = None

    @classmethod
    def for_table(cls, files: Files, folder: str, *, clock: Callable[[], float] = time.time) -> SegmentLog:
        """A folder of segments that is a table by itself: they are never removed.

        Somebody else may remove old ones, to keep the table small, though never the last one."""
        return cls(files, folder, is_table=True, clock=clock)

    @property
    def folder(self) -> str:
        """Its path."""
        return self._folder.path

    @property
    def last(self) -> int:
        """The last segment's number; 0: the log is empty."""
        head = self._head
        return 0 if head is None else head.segment.number

    @property
    def marks(self) -> Marks:
        """How far the table was applied, with all segments."""
        head = self._head
        return Marks() if head is None else head.marks

    @property
    def schema(self) -> pa.Schema | None:
        """Of the last segment, or behind it: binlane's columns and the source's; None: the log is empty."""
        head = self._head
        return None if head is None else head.segment.after[0]

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns that the last segment names."""
        head = self._head
        return () if head is None else head.segment.after[1]

    @property
    def is_behind(self) -> bool:
        """Whether what is put next is hidden from views."""
        head = self._head
        return head is not None and head.is_behind

    @property
    def stream(self) -> str | None:
        """The stream of packs in which the log may go on behind its last segment; None: it does not."""
        head = self._head
        return None if head is None else head.stream

    @property
    def has_rows_last(self) -> bool:
        """Whether the last segment has rows; an empty log has none."""
        head = self._head
        return head is not None and head.segment.rows > 0

    @property
    def last_put(self) -> float:
        """When the last segment was put, seconds since 1970 by its writer's clock; 0: the log is empty."""
        head = self._head
        return 0.0 if head is None else head.segment.written_ms / 1000

    @property
    def segments(self) -> Sequence[Segment]:
        """All there are, in order. See `after`."""
        return self.after(0)

    def after(self, number: int) -> Sequence[Segment]:
        """The segments beyond this one, in order.

        Those that this object did not put are looked into once, when first asked for. Raises BrokenLog,
        RuntimeError for a log that is a table, and what the store raises."""
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
                self._folder.see_removed()
                if each > self._folder.removed:
                    raise BrokenLog(missing(self._folder.file(each))) from None
                continue
            with self._lock:
                if each in self._known:
                    self._known[each] = read
            found.append(read)
        return found

    def load(self) -> None:
        """Look what the folder holds. Cheap: of all files but the last only the names are read.

        Left-overs of crashed writers are removed. Raises BrokenLog for a file that is none of ours, for one
        that is missing, and for a last one that cannot be read; and what the store raises."""
        for look in range(1, _LOOKS + 1):
            try:
                found = self._folder.sizes() if self._is_table else self._folder.whole_sizes()
                head = None
                if found:
                    number = max(found)
                    head = read_head(self._files, self._folder.file(number), number, found[number])
            except (BrokenLog, FileNotFoundError) as error:
                # A listing is no snapshot: while others put and remove, it may have holes.
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
            self._head = head
        if head is not None and not head.is_behind:
            number = head.segment.number
            self._folder.show(number - 1, number)  # whoever put it may have died before

    def has_grown(self) -> bool:
        """Look whether another worker has put segments since. Raises what the store raises."""
        return self._folder.newest() > self.last

    def removed(self) -> int:
        """Look which segments any worker has removed, or begun to: up to and including this number.

        They were merged before. Raises what the store raises."""
        self._folder.see_removed()
        return self._folder.removed

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
        """Put the next segment; when this returns, it is durable and in the log.

        `table`: binlane's columns, of which the second is the source time, then the source's; `marks`: the
        table's, once these rows are applied, complete. `statement`: is to be followed when all before it is
        merged; what is put behind it is hidden. `shows`: all statements are followed, and views may read this
        segment and those that are put behind it; what was hidden before it and is not merged is shown already
        (see `show`). `stream`: the log may go on behind it in these packs. Raises SegmentTaken: nothing was
        put, or what was put is in the log already, as `load` will show. Raises what the store raises: the
        same holds then."""
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
            self._folder.see_removed()
            if number <= self._folder.removed:
                self._folder.delete(number)
                raise SegmentTaken(path)
            if is_hidden and shows:
                self._folder.show(number - 1, number)
        with self._lock:
            if not self._is_table:
                self._known[number] = head.segment
            self._head = head
        return head.segment

    def show(self, after: int, up_to: int) -> None:
        """Let views read what was hidden beyond a number, up to and including another: the statements before
        it are followed. Raises what the store raises."""
        self._folder.show(after, up_to)

    def remove(self, up_to: int) -> None:
        """Remove the segments up to and including this number, never the last one, nor the last that views
        read.

        They must have been merged. Raises what the store raises; the next call tries again."""
        if self._is_table:
            raise RuntimeError(f"{self.folder} is a table: its segments are its rows")
        with self._lock:
            up_to = min(up_to, self.last - 1, self._folder.last_shown - 1)
            numbers = [number for number in self._known if number <= up_to]
        if not numbers:
            return
        self._folder.use_up(up_to)
        # Oldest first: were it to stop midway, what is left has no holes.
        for number in numbers:
            self._folder.delete(number)
            with self._lock:
                self._known.pop(number, None)

    def retire(self, up_to: int, *, after: int = 0) -> None:
        """Let readers pass over the segments up to and including this number, where the store can; `after`:
        so far they do already.

        Their rows must have been in the table for so long that no query that begins now looks at it as it was
        before. They are to be removed later, when none that began before still reads them."""
        with self._lock:
            numbers = [number for number in self._known if after < number <= up_to]
        for number in numbers:
            with suppress(FilesError):  # a store where other users' files cannot be changed
                self._files.retire(self._folder.file(number))

    def _now(self) -> int:
        return int(self._clock() * 1000)
