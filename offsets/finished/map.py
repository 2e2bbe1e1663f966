"""Where the flags of finished offsets live, so that they outlive the process: files mapped into memory.

A flag is written as ever, one byte an offset, but into a page that the operating system keeps when the
process is killed. Whoever comes next takes what is flagged there together with the last checkpoint, which
names the window that goes on from it (`offsets.restore`).

Nothing is moved or overwritten. Runs are added to the last segment; now and then (`turn`) a new one is begun,
what is still unfinished is copied into it, and once a checkpoint taken after that is in the local file, the
segments before are removed. Until then both count, and what either calls finished is finished: so there is no
moment in which a kill loses a flag.

What cannot be written (no room, no rights) ends the whole map: a part of it would call later changes finished
and earlier ones not. Checkpoints go on, and the map begins anew as soon as it can.
"""

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
from offsets.finished.segment import segment_path, writer_text
from offsets.finished.writer import Writer
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
        """The last commits that were sent for it; none of another worker is like one of them."""
        self.ended = False

    @property
    def name(self) -> str:
        """By which a checkpoint says what goes on from it: the writer, the window, and the first segment that
        is needed for it."""
        return f"{writer_text(self._writer.id)}:{self._number}:{self._map.first_needed()}"

    def keep(
        self, start: int, end: int, first: int, sparse: tuple[int, ...] | None, flags: bytes
    ) -> memoryview | None:
        """A place for these flags of a run (see `RunRecord`), which has them; from now on it counts.

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
        """Be known in the last segment, too, though nothing of it is unfinished."""
        with self._map.lock:
            if self.ended:
                return
            try:
                self._writer.add_window(self, 0)
            except OSError as error:
                self._map.give_up(error)

    def note(self, mark: Mark) -> None:
        """A commit that is about to be sent. Cannot fail."""
        with self._map.lock:
            if mark.is_bare or self.ended:
                return
            self.marks = (*self.marks, mark)[-MOST_MARKS:]
            packed, place = mark_bytes(mark), mark_place(self._slot)
            self._slot = (self._slot + 1) % MOST_MARKS
            for record in self._places.values():
                record[place : place + len(packed)] = packed

    def end(self) -> None:
        """What is flagged from now on counts no more, nor does what was. Cannot fail."""
        with self._map.lock:
            self.ended = True
            for record in self._places.values():
                record[0] = ENDED
            self._writer.windows.discard(self)

    def record_in(self, segment: int) -> bool:
        return segment in self._places

    def bytes_for(self) -> bytes:
        """Its record as of now."""
        # Its marks take the slots from the first on; the next one takes that of the oldest.
        self._slot = len(self.marks) % MOST_MARKS
        return window_bytes(self._number, self.marks)[0]

    def placed(self, segment: int, record: memoryview) -> None:
        """It has this record in the segment."""
        self._places[segment] = record[window_bytes(self._number, ())[1] :]

    def left(self, segment: int) -> None:
        self._places.pop(segment, None)


class FinishedMap:
    """The map of one worker: `directory/finished-*.map`. Safe to use from several threads."""

    def __init__(
        self,
        directory: Path,
        group: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Touches nothing yet; the first window makes the first file.

        `most_bytes`: what its files may take; beyond that it is given up until they are fewer."""
        self._directory = directory
        self._group = group
        self._segment_bytes = segment_bytes
        self._most_bytes = most_bytes
        self.lock = threading.RLock()
        """Guards the structure of the map and its windows; flags are written without it."""
        self._writer: Writer | None = None
        self._windows = 0
        self._may_begin = True
        self._never = False  # the system does not tell what a map needs
        self._told = False  # that it is given up
        self._refused = False  # a tracker has no window, and is to get one
        self._turned: int | None = None  # the segment from which on everything unfinished will be
        self._moved = False  # it is

    def window(self, marks: tuple[Mark, ...] = ()) -> Window | None:
        """For a new tracker. None: the map is given up for now, and flags stay in the process's memory.

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
        """Before all trackers are looked at for a checkpoint: whether they are to move their runs, as what
        stands in earlier segments will be removed. To be called before it is asked which trackers there
        are."""
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
        """All trackers have moved what is unfinished."""
        with self.lock:
            self._moved = self._turned is not None
            self._refused = self._refused and self._writer is None

    def saved(self) -> None:
        """The checkpoint of all trackers, taken since, is in the local file."""
        with self.lock:
            self._may_begin = True
            if self._turned is None or not self._moved:
                return
            if self._writer is not None:
                self._writer.drop_before(self._turned)
            self._turned, self._moved = None, False

    def give_up(self, error: OSError) -> None:
        """What is in the map does not count any more; flags go on in the process's memory."""
        with self.lock:
            writer, self._writer = self._writer, None
            self._may_begin, self._refused = False, True
            self._turned, self._moved = None, False
            if writer is not None:
                last = writer.segments.pop(writer.last)
                last.give_up()  # at once for all: a part of them would be worse than none
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
                hint="a kill repeats what finished since the last checkpoint, until the map can be written: "
                + ("make room on its disk" if error.errno in _NO_ROOM else "see checkpoint.directory"),
            )

    def first_needed(self) -> int:
        """The segment from which on all must be there for a checkpoint that is taken now."""
        with self.lock:
            if self._turned is not None and self._moved:
                return self._turned
            return min(self._writer.segments) if self._writer is not None else 0

    def close(self, names: Iterable[str]) -> None:
        """The worker ends: remove the files, unless checkpoints name a window of them."""
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
            _log.info("finished_map_off", reason="this system does not tell when it was started")
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
