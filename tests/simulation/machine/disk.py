"""A disk in memory: what was written, what of it would survive a power loss, and what is wrong with it."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .scheduler import Process, Scheduler

__all__ = ["Disk", "DiskFcntl", "DiskOs", "DiskPath"]


class _File:
    def __init__(self) -> None:
        self.data = b""
        self.durable = b""


class Disk:
    """Files by their whole name. Its calls are the places where a task may be interrupted."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.files: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}
        self._handles: dict[int, tuple[str, Process]] = {}
        self._locks: dict[str, int] = {}
        self._next = 100
        self.full = False

    def touch(self, *, writes: bool = False) -> None:
        """Before each call. Raises OSError when it cannot be done."""
        self.scheduler.preempt()
        if writes and self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync_names(self) -> None:
        self._durable = dict(self.files)

    def lose_power(self) -> None:
        """What was not flushed is gone: names, and the ends of files."""
        self.files = dict(self._durable)
        for file in self.files.values():
            file.data = file.durable

    def keep(self) -> dict[str, bytes]:
        """A copy, as a backup has it."""
        return {name: file.data for name, file in self.files.items()}

    def put_back(self, copy: dict[str, bytes]) -> None:
        """The backup's files in place of those that are there."""
        for name, data in copy.items():
            file = self.files[name] = _File()
            file.data = file.durable = data
        self.sync_names()

    def tear(self, name: str) -> None:
        """Cut the file off somewhere."""
        file = self.files.get(name)
        if file is not None and file.data:
            file.data = file.durable = file.data[: int(self.scheduler.random.random() * len(file.data))]

    def remove(self, folder: str) -> None:
        for name in [each for each in self.files if each.startswith(f"{folder}/")]:
            del self.files[name]
        self.sync_names()

    def open_handle(self, name: str) -> int:
        task = self.scheduler.task
        assert task is not None
        self._next += 1
        self._handles[self._next] = (name, task.process)
        return self._next

    def lock(self, handle: int) -> None:
        name = self._handles[handle][0]
        if self._locks.setdefault(name, handle) != handle:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")

    def close(self, handle: int) -> None:
        name, _ = self._handles.pop(handle, ("", None))
        if self._locks.get(name) == handle:
            del self._locks[name]

    def name_of(self, handle: int) -> str:
        return self._handles[handle][0]

    def died(self, process: Process) -> None:
        for handle in [h for h, (_, owner) in self._handles.items() if owner is process]:
            self.close(handle)


class _Handle:
    def __init__(self, disk: Disk, name: str, *, writes: bool) -> None:
        self._disk, self._name, self._writes = disk, name, writes
        self._reader = io.BytesIO(b"" if writes else disk.files[name].data)
        self.readline: Callable[[], bytes] = self._reader.readline
        self.read: Callable[[], bytes] = self._reader.read
        self._number = disk.open_handle(name)

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._disk.close(self._number)

    def write(self, data: bytes) -> int:
        half = len(data) // 2
        self._disk.files[self._name].data += data[:half]  # a kill may come in the middle
        self._disk.touch(writes=True)
        self._disk.files[self._name].data += data[half:]
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        return self._number


class DiskPath:
    """The part of pathlib.Path that the file store uses."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self.name = disk, name

    def __str__(self) -> str:
        return self.name

    def __truediv__(self, other: str) -> DiskPath:
        return DiskPath(self.disk, f"{self.name}/{other}")

    def with_name(self, name: str) -> DiskPath:
        return DiskPath(self.disk, f"{self.name.rpartition('/')[0]}/{name}")

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        self.disk.touch(writes=True)

    def exists(self) -> bool:
        return self.name in self.disk.files

    def open(self, mode: str) -> _Handle:
        self.disk.touch(writes=mode == "wb")
        if mode == "wb":
            self.disk.files[self.name] = _File()
        elif not self.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file", self.name)
        return _Handle(self.disk, self.name, writes=mode == "wb")

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return file.read()

    def replace(self, other: DiskPath) -> None:
        self.disk.touch()
        self.disk.files[other.name] = self.disk.files.pop(self.name)

    def unlink(self, *, missing_ok: bool) -> None:
        self.disk.touch()
        self.disk.files.pop(self.name, None)


class DiskOs:
    """The part of `os` that the file store uses; the rest is the real one's."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def open(self, path: DiskPath, flags: int, mode: int = 0o777) -> int:
        path.disk.touch()
        handle = path.disk.open_handle(path.name)
        _open[handle] = path.disk
        return handle

    def close(self, handle: int) -> None:
        _open.pop(handle).close(handle)

    def link(self, source: DiskPath, target: DiskPath) -> None:
        source.disk.touch(writes=True)
        source.disk.files[target.name] = source.disk.files[source.name]

    def fsync(self, handle: int) -> None:
        disk = _open.get(handle) or _current()
        disk.touch()
        name = disk.name_of(handle)
        if name in disk.files:
            disk.files[name].durable = disk.files[name].data
        else:
            disk.sync_names()


class DiskFcntl:
    """flock, between the processes of a simulation."""

    def __init__(self, real: Any) -> None:
        self.LOCK_EX, self.LOCK_NB = real.LOCK_EX, real.LOCK_NB

    def flock(self, handle: int, flags: int) -> None:
        disk = _open[handle]
        disk.touch()
        disk.lock(handle)


_open: dict[int, Disk] = {}


def _current() -> Disk:
    from ..world import world

    return world().disk
