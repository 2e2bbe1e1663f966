"""The map of finished offsets: flags in memory-mapped files, which outlive the process.

A flag is one byte per offset, in a page that the operating system keeps if the process is killed. The next
process uses these flags together with the last checkpoint, which names the window that continues from it
(`offsets.restore`).

Nothing is moved or overwritten. Runs are appended to the last segment. From time to time (`turn`) a new
segment is started, and the unfinished offsets are copied into it. The earlier segments are removed once a
later checkpoint is in the local file. Until then both count, and an offset is finished if either says so. So
a kill loses no flag at any moment.

If something cannot be written (no room, no rights), the whole map ends: a part would mark later changes as
finished and earlier ones not. Checkpoints continue, and a new map starts as soon as possible."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import structlog

from offsets.finished.layout import (
    ENDED,
    MOST_MARKS,
    RunRecord,
    boot_id,
    mark_bytes,
    mark_place,
    window_bytes,
)
from offsets.finished.segment import Writer, segment_path, writer_text
from offsets.types import Mark

_log = structlog.get_logger(__name__)

SEGMENT_BYTES = 1 << 20
MOST_BYTES = 64 << 20

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class Window:
    """The part of a map that one tracker writes. Made by `FinishedMap.window`."""

    __slots__ = ("_map", "_number", "_places", "_slot", "_writer", "ended", "marks")

    def __init__(self, map_: FinishedMap, writer: Writer, number: int, marks: tuple[Mark, ...]) -> None:
        self._map = map_
        self._writer = writer
        self._number = number
        self._places: dict[int, memoryview] = {}  # segment's number -> its record there, behind its head
        self._slot = len(marks) % MOST_MARKS
        self.marks = marks
        """The last commits that were sent for it. No other worker's commit equals one of them."""
        self.ended = False

    @property
    def name(self) -> str:
        """The name by which a checkpoint refers to the window: the writer, the window, and the first segment
        that is needed."""
        return f"{writer_text(self._writer.id)}:{self._number}:{self._map.first_needed()}"

    def keep(
        self, start: int, end: int, first: int, sparse: tuple[int, ...] | None, flags: bytes
    ) -> memoryview | None:
        """Store these flags of a run (see `RunRecord`). From now on they count. Returns their place.

        None: the map has been given up, or the window ended."""
        with self._map.lock:
            if self.ended:
                return None
            try:
                return self._writer.add_run(self, RunRecord(self._number, start, end, first, sparse, flags))
            except OSError as error:
                self._map.give_up(error)
                return None

    def stay(self) -> None:
        """Add the window to the last segment, even if it has no unfinished offsets."""
        with self._map.lock:
            if self.ended:
                return
            try:
                self._writer.add_window(self, 0)
            except OSError as error:
                self._map.give_up(error)

    def note(self, mark: Mark) -> None:
        """Store a commit that will now be sent. Cannot fail."""
        with self._map.lock:
            if mark.is_bare or self.ended:
                return
            self.marks = (*self.marks, mark)[-MOST_MARKS:]
            packed, place = mark_bytes(mark), mark_place(self._slot)
            self._slot = (self._slot + 1) % MOST_MARKS
            for record in self._places.values():
                record[place : place + len(packed)] = packed

    def end(self) -> None:
        """End the window: none of its flags count any more. Cannot fail."""
        with self._map.lock:
            self.ended = True
            for record in self._places.values():
                record[0] = ENDED
            self._writer.windows.discard(self)

    def record_in(self, segment: int) -> bool:
        return segment in self._places

    def bytes_for(self) -> bytes:
        """Return its present record."""
        # Its marks take the slots from the first on. The next mark replaces the oldest.
        self._slot = len(self.marks) % MOST_MARKS
        return window_bytes(self._number, self.marks)[0]

    def placed(self, segment: int, record: memoryview) -> None:
        """Remember the window's record in the segment."""
        self._places[segment] = record[window_bytes(self._number, ())[1] :]

    def left(self, segment: int) -> None:
        self._places.pop(segment, None)


class FinishedMap:
    """The map of one worker: `directory/finished-*.map`. Safe to use from several threads."""

    def __init__(
        self, directory: Path, group: str, *, segment_bytes: int = SEGMENT_BYTES, most_bytes: int = MOST_BYTES
    ) -> None:
        """Touches no file: the first window makes it.

        `most_bytes`: the most bytes of its files. Beyond that it is given up until they are fewer."""
        self._directory = directory
        self._group = group
        self._segment_bytes = segment_bytes
        self._most_bytes = most_bytes
        self.lock = threading.RLock()
        """Guards the structure of the map and its windows. Flags are written without it."""
        self._writer: Writer | None = None
        self._windows = 0
        self._may_begin = True
        self._never = False  # the system lacks what a map needs
        self._told = False  # logged that the map is given up
        self._refused = False  # a tracker without a window needs one
        self._turned: int | None = None  # the first segment that will have everything unfinished
        self._moved = False  # it has everything

    def window(self, marks: tuple[Mark, ...] = ()) -> Window | None:
        """Return a window for a new tracker. None: the map is given up, and flags stay in the process's
        memory.

        `marks`: commits that were sent before for the same assignment."""
        with self.lock:
            writer = self._writer or self._begin()
            if writer is None:
                self._refused = True
                return None
            self._windows += 1
            window = Window(self, writer, self._windows, marks)
            writer.windows.add(window)
            return window

    def turn(self) -> bool:
        """Return whether all trackers must move their runs, because earlier segments will be removed. Called
        before a checkpoint of all trackers, and before the list of trackers is read."""
        with self.lock:
            if self._turned is None:
                writer = self._writer
                try:
                    if writer is not None and len(writer.segments) > 1:
                        writer.begin()
                    elif not self._refused:
                        return False
                except OSError as error:
                    self.give_up(error)
                    return False
                writer = writer or self._begin()
                if writer is None:
                    return False
                self._turned = writer.last
            return not self._moved

    def moved(self) -> None:
        """All trackers have moved their unfinished offsets."""
        with self.lock:
            self._moved = self._turned is not None
            self._refused = self._refused and self._writer is None

    def saved(self) -> None:
        """The local file has the checkpoint of all trackers that was taken since."""
        with self.lock:
            self._may_begin = True
            if self._turned is None or not self._moved:
                return
            if self._writer is not None:
                self._writer.drop_before(self._turned)
            self._turned, self._moved = None, False

    def give_up(self, error: OSError) -> None:
        """The map no longer counts. Flags continue in the process's memory."""
        with self.lock:
            writer, self._writer = self._writer, None
            self._may_begin, self._refused = False, True
            self._turned, self._moved = None, False
            if writer is not None:
                last = writer.segments.pop(writer.last)
                last.give_up()  # one byte ends the whole map: a part would be worse than none
                for window in list(writer.windows):
                    window.end()
                for segment in (*writer.segments.values(), last):
                    segment.remove()
            if self._told:
                return
            self._told = True
            _log.warning(
                "finished_map_off",
                directory=str(self._directory),
                reason=error.strerror or str(error),
                hint="a kill repeats what finished since the checkpoint, until the map can be written: "
                + ("make room on its disk" if error.errno in _NO_ROOM else "see checkpoint.directory"),
            )

    def first_needed(self) -> int:
        """Return the first segment that a checkpoint taken now needs."""
        with self.lock:
            if self._turned is not None and self._moved:
                return self._turned
            return min(self._writer.segments) if self._writer is not None else 0

    def close(self, names: Iterable[str]) -> None:
        """The worker ends: remove the files, unless checkpoints name one of its windows."""
        with self.lock:
            writer, self._writer = self._writer, None
            self._may_begin = False
            if writer is not None and writer_text(writer.id) not in {name.split(":")[0] for name in names}:
                for segment in writer.segments.values():
                    segment.remove()

    def _begin(self) -> Writer | None:
        if not self._may_begin or self._never:
            return None
        boot = boot_id()
        if boot is None:
            self._never = True
            _log.info("finished_map_off", reason="this system does not report its boot")
            return None
        try:
            path = partial(segment_path, self._directory, self._group)
            self._writer = Writer(path, boot, self._segment_bytes, self._most_bytes)
        except OSError as error:
            self.give_up(error)
            return None
        if self._told:
            self._told = False
            _log.info("finished_map_on", directory=str(self._directory))
        return self._writer
