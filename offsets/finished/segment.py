"""The files of one map of finished offsets, while its worker writes them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import secrets
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from offsets.finished.layout import (
    FIRST_RECORD,
    GIVEN_UP,
    GIVEN_UP_AT,
    USED_WORD,
    Head,
    RunRecord,
    run_bytes,
    segment_head,
)

_SUFFIX, _NEW = ".map", ".new"


class Segment:
    """A file of fixed size, mapped into memory. Its content survives if the process is killed.

    The file stays locked as long as it is mapped, so nobody considers its worker dead. It may be removed
    meanwhile. No place in it is ever reused: a thread that writes a flag late still writes to its own place.
    """

    def __init__(self, path: Path, head: Head) -> None:
        """Make the file with all its blocks, because writing to a mapped page without disk room kills the
        process.

        Raises OSError: there is no room, or the folder or file system rejects it."""
        self.path = path
        self.size = head.size
        temporary = path.with_suffix(_NEW)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(descriptor, 0, head.size)
            self._mapped = mmap.mmap(descriptor, head.size)
            first = segment_head(head)
            self._mapped[: len(first)] = first
            self._view = memoryview(self._mapped)
            self._words = self._view.cast("Q")
            self._words[USED_WORD] = self._used = FIRST_RECORD
            temporary.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        finally:
            os.close(descriptor)  # the mapping has its own descriptor, and with it the lock

    @property
    def left(self) -> int:
        """Bytes that are free for records."""
        return self.size - self._used

    def add(self, record: bytes) -> memoryview:
        """Add a record of whole words, for which there must be room. Returns its place, for its flags."""
        begin = self._used
        end = begin + len(record)
        self._view[begin:end] = record
        self._used = end
        self._words[USED_WORD] = end  # one write: from now on the record counts, and it is complete
        return self._view[begin:end]

    def give_up(self) -> None:
        """Mark this and all segments of the same writer as unusable. Cannot fail."""
        self._view[GIVEN_UP_AT] = GIVEN_UP

    def remove(self) -> None:
        """Remove the file. Threads with a place in it may continue to write there."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def writer_text(writer: int) -> str:
    """Format the writer's number as in the names of files and windows."""
    return f"{writer:016x}"


def segment_path(directory: Path, group: str, writer: int, number: int) -> Path:
    return directory / f"finished-{_tag(group)}-{writer_text(writer)}-{number}{_SUFFIX}"


def segments_of(directory: Path, group: str | None = None) -> dict[int, dict[int, Path]]:
    """Find the group's maps in the folder (None: all groups'), as {writer: {number: file}}. A missing folder
    has none.

    Raises OSError: the folder cannot be read."""
    found: dict[int, dict[int, Path]] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        tag = "*" if group is None else _tag(group)
        for path in directory.glob(f"finished-{tag}-*{_SUFFIX}"):
            with contextlib.suppress(ValueError):
                _, _, writer, number = path.stem.split("-")
                found.setdefault(int(writer, 16), {})[int(number)] = path
    return found


def unfinished_files(directory: Path, group: str) -> list[Path]:
    """Return the group's files that are being made, or were when their worker was killed."""
    return list(directory.glob(f"finished-{_tag(group)}-*{_NEW}"))


def _tag(group: str) -> str:
    """Identifies the group's files, because several groups may use one folder."""
    return f"{zlib.crc32(group.encode()):08x}"


def is_locked(path: Path) -> bool:
    """Whether the worker that writes the file is alive.

    Raises OSError: it cannot be opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class _Placed(Protocol):
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
        self.windows: set[_Placed] = set()
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

    def add_run(self, window: _Placed, record: RunRecord) -> memoryview:
        """Add a run to the last segment, and return the place of its flags. Raises OSError."""
        data, flags_at = run_bytes(record)
        self.add_window(window, len(data))
        return self.segments[self.last].add(data)[flags_at : flags_at + len(record.flags)]

    def add_window(self, window: _Placed, needed: int) -> None:
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
