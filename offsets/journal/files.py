"""The journal's files: units by their number, each file named by the number of its first."""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from offsets.journal.unit import SIZE, Unit, unpacked
from offsets.stores.file import flush_directory

_SUFFIX = ".journal"
_DIGITS = 20
_MOST_OPEN = 32
_BLOCK_UNITS = 1024


class UnitFiles:
    """A folder of files. Numbers only grow; what was removed, cut off or damaged is read as None.

    One process at a time appends; any may read meanwhile. Not for several threads. Raises OSError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reads = 0
        """How many units were read one by one."""
        self._firsts: list[int] = []  # ascending: the names
        self._open: OrderedDict[int, int] = OrderedDict()  # first -> descriptor, the last used one last

    def look(self) -> None:
        """See which files there are; O(files)."""
        self.close()
        try:
            names = [path.stem for path in self.folder.iterdir() if path.suffix == _SUFFIX]
        except FileNotFoundError:
            names = []
        ours = (name for name in names if name.isascii() and name.isdigit() and len(name) == _DIGITS)
        self._firsts = sorted(int(name) for name in ours)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The number of each file's first unit."""
        return tuple(self._firsts)

    def path(self, first: int) -> Path:
        """Where the file with this first unit is."""
        return self.folder / f"{first:0{_DIGITS}d}{_SUFFIX}"

    def end(self, first: int) -> int:
        """One more than the number of the last whole unit of a file."""
        return first + self.size(first) // SIZE

    def size(self, first: int) -> int:
        """Bytes of a file; 0 when it is gone."""
        descriptor = self._descriptor(first)
        return 0 if descriptor is None else os.fstat(descriptor).st_size

    def is_gone(self, first: int) -> bool:
        """Whether somebody removed the file, or moved it or its folder away."""
        descriptor = self._descriptor(first)
        if descriptor is None:
            return True
        try:
            return not os.path.samestat(os.fstat(descriptor), self.path(first).stat())
        except FileNotFoundError:
            return True

    def read(self, number: int) -> Unit | None:
        """One unit; None: it is not there."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return None
        first = self._firsts[place]
        descriptor = self._descriptor(first)
        if descriptor is None:
            return None
        self.reads += 1
        return unpacked(os.pread(descriptor, SIZE, (number - first) * SIZE), number)

    def scan(self, first: int, number: int | None = None) -> Iterator[Unit]:
        """The sound units of a file from this number on, ascending."""
        number = first if number is None else number
        end = self.end(first)
        while number < end and (descriptor := self._descriptor(first)) is not None:
            block = os.pread(descriptor, min(_BLOCK_UNITS, end - number) * SIZE, (number - first) * SIZE)
            for place in range(0, len(block) - SIZE + 1, SIZE):
                unit = unpacked(block[place : place + SIZE], number + place // SIZE)
                if unit is not None:
                    yield unit
            number += _BLOCK_UNITS

    def cut(self, first: int) -> int:
        """Cut off what is torn or damaged at the end of a file; how many bytes that were."""
        descriptor = self._descriptor(first)
        if descriptor is None:
            return 0
        size = os.fstat(descriptor).st_size
        whole = size // SIZE
        while whole and unpacked(os.pread(descriptor, SIZE, (whole - 1) * SIZE), first + whole - 1) is None:
            whole -= 1
        if whole * SIZE < size:
            os.ftruncate(descriptor, whole * SIZE)
        return size - whole * SIZE

    def write(self, first: int, number: int, data: bytes) -> None:
        """Put whole units into a file, made if need be, from this number on. When it fails, the file is left
        as long as it was."""
        is_new = first not in self._firsts
        descriptor = self._descriptor(first, make=is_new)
        if descriptor is None:
            raise FileNotFoundError(2, "somebody removed it", str(self.path(first)))
        place = (number - first) * SIZE
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], place + written)
        except OSError:
            with contextlib.suppress(OSError):
                if is_new:
                    self._forget(first)
                    self.path(first).unlink()
                else:
                    os.ftruncate(descriptor, place)
            raise
        if is_new:
            self._firsts.append(first)

    def flush(self, first: int, *, made: bool = False) -> None:
        """Have a file on the disk; `made`: its name, too."""
        descriptor = self._descriptor(first)
        if descriptor is not None:
            os.fdatasync(descriptor)
        if made:
            flush_directory(self.folder)

    def remove(self, first: int) -> None:
        """Remove a file, which may be gone already."""
        self._forget(first)
        self.path(first).unlink(missing_ok=True)
        self._firsts.remove(first)

    def add(self, first: int) -> bool:
        """Know of a file that another process has begun; False: there is none."""
        if not self.path(first).exists():
            return False
        self._firsts.append(first)
        return True

    def close(self) -> None:
        """Let go of what is open; it is opened again when it is needed."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, first: int, *, make: bool = False) -> int | None:
        known = self._open.get(first)
        if known is not None:
            self._open.move_to_end(first)
            return known
        try:
            descriptor = self._opened(first, make=make)
        except FileNotFoundError:
            return None
        self._open[first] = descriptor
        if len(self._open) > _MOST_OPEN:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    def _opened(self, first: int, *, make: bool) -> int:
        flags = os.O_CLOEXEC | (os.O_CREAT if make else 0)
        try:
            return os.open(self.path(first), os.O_RDWR | flags, 0o644)
        except OSError as error:
            is_read_only = isinstance(error, PermissionError) or error.errno == errno.EROFS
            if make or not is_read_only:
                raise
            return os.open(self.path(first), os.O_RDONLY | flags)

    def _forget(self, first: int) -> None:
        descriptor = self._open.pop(first, None)
        if descriptor is not None:
            os.close(descriptor)
