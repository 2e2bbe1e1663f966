"""Adding records to the segments of one map of finished offsets."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from offsets.finished.layout import FIRST_RECORD, Head, RunRecord, run_bytes
from offsets.finished.segment import Segment


class Placed(Protocol):
    """A window, with its records in the segments."""

    def record_in(self, segment: int) -> bool: ...
    def bytes_for(self) -> bytes: ...
    def placed(self, segment: int, record: memoryview) -> None: ...
    def left(self, segment: int) -> None: ...
    def end(self) -> None: ...


class Writer:
    """The segments of one map, from its first segment until it is given up."""

    def __init__(
        self, path: Callable[[int, int], Path], boot: bytes, segment_bytes: int, most_bytes: int
    ) -> None:
        """Start the first segment. Raises OSError."""
        self.id = secrets.randbits(63)
        self.segments: dict[int, Segment] = {}
        self.windows: set[Placed] = set()
        self._path = path
        self._boot = boot
        self._segment_bytes = segment_bytes
        self._most_bytes = most_bytes
        self.last = 0
        """The number of the segment being written."""
        self.begin()

    def begin(self, needed: int = 0) -> None:
        """Continue in a new segment, with room for `needed` bytes. Raises OSError."""
        size = max(self._segment_bytes, FIRST_RECORD + needed + -needed % 8)
        if size + sum(each.size for each in self.segments.values()) > self._most_bytes:
            raise OSError(errno.EFBIG, f"it needs more than {self._most_bytes >> 20} MiB")
        number = self.last + 1
        path = self._path(self.id, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.segments[number] = Segment(path, Head(self._boot, self.id, number, size))
        self.last = number

    def add_run(self, window: Placed, record: RunRecord) -> memoryview:
        """Add a run to the last segment, and return the place of its flags. Raises OSError."""
        data, flags_at = run_bytes(record)
        self.add_window(window, len(data))
        return self.segments[self.last].add(data)[flags_at : flags_at + len(record.flags)]

    def add_window(self, window: Placed, needed: int) -> None:
        """Add the window's record to the last segment if it lacks it, with room for `needed` more bytes.
        Raises OSError."""
        last = self.segments[self.last]
        own = window.bytes_for() if not window.record_in(self.last) else b""
        if last.left < len(own) + needed:
            own = window.bytes_for()
            self.begin(len(own) + needed)
            last = self.segments[self.last]
        if own:
            window.placed(self.last, last.add(own))

    def drop_before(self, number: int) -> None:
        for each in [each for each in self.segments if each < number]:
            self.segments.pop(each).remove()
            for window in self.windows:
                window.left(each)
