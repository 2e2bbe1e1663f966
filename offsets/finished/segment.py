"""One file of the map of finished offsets, while its worker writes it."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import zlib
from pathlib import Path

from offsets.finished.layout import FIRST_RECORD, GIVEN_UP, GIVEN_UP_AT, USED_WORD, Head, segment_head

_SUFFIX, _NEW = ".map", ".new"


class Segment:
    """A file of a fixed size, mapped into memory: what is written there stays when the process is killed.

    The file keeps a lock as long as it is mapped, so that nobody takes it for that of a dead worker; it may
    be removed meanwhile. Nothing in it is ever used again for something else: a thread that is late with a
    flag finds its own place.
    """

    def __init__(self, path: Path, head: Head) -> None:
        """Make the file, with all its blocks: writing to a mapped page that finds no room ends a process.

        Raises OSError: there is no room, or the folder or its file system does not take it."""
        self.path = path
        self.size = head.size
        temporary = path.with_suffix(_NEW)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
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
            os.close(descriptor)  # the mapping has one of its own, and with it the lock

    @property
    def left(self) -> int:
        """Bytes that records may still take."""
        return self.size - self._used

    def add(self, record: bytes) -> memoryview:
        """Add a record of whole words, for which there is room. Returns its place, for its flags."""
        begin = self._used
        end = begin + len(record)
        self._view[begin:end] = record
        self._used = end
        self._words[USED_WORD] = end  # at once: from now on it counts, and it is complete
        return self._view[begin:end]

    def give_up(self) -> None:
        """What stands here, and in all segments of the same writer, is not to be used. Cannot fail."""
        self._view[GIVEN_UP_AT] = GIVEN_UP

    def remove(self) -> None:
        """Remove the file; who holds a place in it may go on writing there."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def writer_text(writer: int) -> str:
    """The writer's number as names of files and windows have it."""
    return f"{writer:016x}"


def segment_path(directory: Path, group: str, writer: int, number: int) -> Path:
    return directory / f"finished-{_tag(group)}-{writer_text(writer)}-{number}{_SUFFIX}"


def segments_of(directory: Path, group: str | None = None) -> dict[int, dict[int, Path]]:
    """{writer: {number: file}} of the group's maps in the folder, by default of all; one that does not exist
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
    """Those of the group that are being made, or were when their worker was killed."""
    return list(directory.glob(f"finished-{_tag(group)}-*{_NEW}"))


def _tag(group: str) -> str:
    """What its files are known by: several groups may use one folder."""
    return f"{zlib.crc32(group.encode()):08x}"


def is_locked(path: Path) -> bool:
    """Whether the worker that writes it lives.

    Raises OSError: it cannot be opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
