"""`Path`, `os`, `fcntl` and `mmap` as the worker's stores use them, on the simulated disk."""

from __future__ import annotations

import errno
import io
import os
import types
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any

from .disk import Disk
from .scheduler import current

__all__ = ["DiskFcntl", "DiskMmap", "DiskOs", "DiskPath"]


class DiskPath:
    """The part of pathlib.Path that the worker uses for its checkpoints."""

    def __init__(self, disk: Disk, whole: str) -> None:
        self.disk, self.whole = disk, whole

    def __str__(self) -> str:
        return self.whole

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiskPath) and self.whole == other.whole

    def __hash__(self) -> int:
        return hash(self.whole)

    def __reduce__(self) -> tuple[Any, ...]:
        """A child process has the same disk."""
        return _same_disk, (self.whole,)

    def __truediv__(self, other: str) -> DiskPath:
        return DiskPath(self.disk, f"{self.whole}/{other}")

    @property
    def name(self) -> str:
        return self.whole.rpartition("/")[2]

    @property
    def parent(self) -> DiskPath:
        return DiskPath(self.disk, self.whole.rpartition("/")[0])

    @property
    def stem(self) -> str:
        return self.name.removesuffix(self.suffix)

    @property
    def suffix(self) -> str:
        before, dot, after = self.name.rpartition(".")
        return f"{dot}{after}" if before else ""

    def with_name(self, name: str) -> DiskPath:
        return self.parent / name

    def with_suffix(self, suffix: str) -> DiskPath:
        return self.with_name(f"{self.stem}{suffix}")

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        self.disk.touch(writes=True)

    def iterdir(self) -> Iterator[DiskPath]:
        self.disk.touch()
        return iter([path for path in self._all() if path.parent == self])

    def glob(self, pattern: str) -> Iterator[DiskPath]:
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def exists(self) -> bool:
        return self.whole in self.disk.files

    def open(self, mode: str) -> _Handle:
        if mode == "wb":
            self.disk.make(self.whole)
        else:
            self.disk.touch()
            if not self.exists():
                raise _no_file(self.whole)
        return _Handle(self.disk, self.whole, writes=mode == "wb")

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return file.read()

    def stat(self) -> Any:
        self.disk.touch()
        if not self.exists():
            raise _no_file(self.whole)
        return types.SimpleNamespace(st_dev=0, st_ino=id(self.disk.files[self.whole]))

    def replace(self, other: DiskPath) -> None:
        self.disk.touch()
        if not self.exists():
            raise _no_file(self.whole)
        self.disk.files[other.whole] = self.disk.files.pop(self.whole)

    rename = replace

    def unlink(self, *, missing_ok: bool = False) -> None:
        self.disk.touch()
        if self.disk.files.pop(self.whole, None) is None and not missing_ok:
            raise _no_file(self.whole)

    def _all(self) -> list[DiskPath]:
        return [DiskPath(self.disk, whole) for whole in sorted(self.disk.files)]


def _same_disk(whole: str) -> DiskPath:
    return DiskPath(current().world.disk, whole)


class _Handle:
    def __init__(self, disk: Disk, name: str, *, writes: bool) -> None:
        self._disk, self._file = disk, disk.files[name]
        self._reader = io.BytesIO(b"" if writes else bytes(self._file.data))
        self.readline: Callable[[], bytes] = self._reader.readline
        self.read: Callable[[], bytes] = self._reader.read
        self._number = disk.open(name, self._file)

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._disk.close(self._number)

    def write(self, data: bytes) -> int:
        half = len(data) // 2
        self._file.data += data[:half]  # a kill may come in the middle
        self._disk.touch(writes=True)
        self._file.data += data[half:]
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        return self._number


_NO_FILES = ("cpu_count", "environ", "fsencode", "getpid", "urandom")
"""What of the real `os` touches no file."""


class DiskOs:
    """The part of `os` that the worker uses for its checkpoints, and what else of it touches no file."""

    def __init__(self, disk: Callable[[], Disk]) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if callable(real) and name not in _NO_FILES:
            # The worker would take the error for one of its disk, and live without the file.
            self._disk().scheduler.world.oracles.broken("disk", f"os.{name} is not simulated")
            raise NotImplementedError(name)
        return real

    def fchmod(self, number: int, mode: int) -> None:
        disk = self._disk()
        disk.touch()
        disk.file(number)

    def open(self, path: DiskPath, flags: int, mode: int = 0o777) -> int:
        disk = path.disk
        disk.touch()
        if flags & os.O_DIRECTORY:
            return disk.open(path.whole, None)
        if not path.exists():
            if not flags & os.O_CREAT:
                raise _no_file(path.whole)
            disk.make(path.whole)
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists", path.whole)
        return disk.open(path.whole, disk.files[path.whole])

    def close(self, number: int) -> None:
        self._disk().close(number)

    def link(self, source: DiskPath, target: DiskPath) -> None:
        source.disk.touch(writes=True)
        source.disk.files[target.whole] = source.disk.files[source.whole]

    def fstat(self, number: int) -> Any:
        disk = self._disk()
        file = disk.file(number)
        names = sum(each is file for each in disk.files.values())
        return types.SimpleNamespace(
            st_size=len(file.data), st_nlink=names, st_dev=0, st_ino=id(file), st_uid=0
        )

    def fstatvfs(self, number: int) -> Any:
        self._disk().file(number)
        return types.SimpleNamespace(f_blocks=1 << 30, f_bavail=1 << 30, f_frsize=4096)

    def pread(self, number: int, count: int, place: int) -> bytes:
        disk = self._disk()
        disk.touch()
        return bytes(disk.file(number).data[place : place + count])

    def pwrite(self, number: int, data: bytes, place: int) -> int:
        disk = self._disk()
        file = disk.file(number).data
        for first, piece in ((0, data[: len(data) // 2]), (len(data) // 2, data[len(data) // 2 :])):
            begin = place + first
            file.extend(bytes(max(0, begin - len(file))))
            file[begin : begin + len(piece)] = piece
            disk.touch(writes=not first)  # a kill may come in the middle
        return len(data)

    def ftruncate(self, number: int, size: int) -> None:
        disk = self._disk()
        disk.touch()
        del disk.file(number).data[size:]

    def posix_fallocate(self, number: int, place: int, count: int) -> None:
        disk = self._disk()
        disk.touch(writes=True)
        file = disk.file(number).data
        file.extend(bytes(max(0, place + count - len(file))))

    def fsync(self, number: int) -> None:
        disk = self._disk()
        disk.touch()
        opened = disk.description(number)
        if opened.file is None:
            disk.sync_names(opened.name)
        else:
            opened.file.sync()

    fdatasync = fsync


class DiskFcntl:
    """flock, between the processes of a simulation."""

    def __init__(self, real: Any, disk: Callable[[], Disk]) -> None:
        self.LOCK_EX, self.LOCK_SH, self.LOCK_NB = real.LOCK_EX, real.LOCK_SH, real.LOCK_NB
        self._disk = disk

    def flock(self, number: int, flags: int) -> None:
        disk = self._disk()
        disk.touch()
        disk.lock(number, alone=bool(flags & self.LOCK_EX))


class DiskMmap:
    def __init__(self, disk: Callable[[], Disk]) -> None:
        self._disk = disk

    def mmap(self, number: int, size: int) -> bytearray:
        """The file's own bytes: what is written there needs no call, and stays when the process ends."""
        disk = self._disk()
        disk.touch()
        opened = disk.description(number)
        file = disk.file(number)
        assert len(file.data) == size
        opened.users += 1  # it has a descriptor of its own, and with it the lock
        file.is_mapped = True
        return file.data


def _no_file(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", name)
