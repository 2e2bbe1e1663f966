"""A disk in memory: what was written, what of it would survive a power loss, and what is wrong with it."""

from __future__ import annotations

import errno

from .scheduler import Process, Scheduler

__all__ = ["Description", "Disk", "File"]

_PAGE_BYTES = 512
"""What a disk writes at once or not at all."""

_PARKED = "/parked-"
"""In the names of files without which a worker that runs must end with an error."""


class File:
    """An inode. A program that has mapped it writes into `data` itself."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = data
        self.is_mapped = False
        self.locks: dict[Description, bool] = {}
        """Whether who has it has it alone."""

    def sync(self) -> None:
        self.durable = bytes(self.data)


class Description:
    """A file, or a folder, that a process has open: by a descriptor, or as long as it lives by a mapping."""

    def __init__(self, name: str, file: File | None, process: Process) -> None:
        self.name = name
        self.file = file
        """None: a folder."""
        self.process = process
        self.users = 1

    def close(self) -> None:
        self.users -= 1
        if self.users == 0 and self.file is not None:
            self.file.locks.pop(self, None)


class Disk:
    """Files by their whole name. Its calls are the places where a task may be interrupted."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.files: dict[str, File] = {}
        self._durable: dict[str, File] = {}
        self._open: dict[int, Description] = {}
        self._next = 100
        self.full = False
        self.boot = scheduler.random.randbytes(16)
        """By which one run of the operating system is told from another."""

    def touch(self, *, writes: bool = False) -> None:
        """Before each call. Raises OSError when it cannot be done."""
        self.scheduler.preempt()
        if writes and self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def make(self, name: str) -> File:
        """An empty file in place of what has the name. Raises OSError."""
        self.touch(writes=True)
        file = self.files[name] = File()
        return file

    def sync_names(self, folder: str) -> None:
        """The folder's names are on the disk; meanwhile the system writes something else back, too."""
        self._durable = {name: file for name, file in self._durable.items() if not _is_in(name, folder)}
        self._durable |= {name: file for name, file in self.files.items() if _is_in(name, folder)}
        mapped = [file for file in self.files.values() if file.is_mapped]
        if mapped:
            random = self.scheduler.random
            file = mapped[int(random.random() * len(mapped))]
            written = [random.random() < 0.5 for _ in _pages(file)]
            file.durable = _mixed(file.durable, bytes(file.data), written)

    # -- what goes wrong with it

    def lose_power(self) -> None:
        """Of what was not flushed some names and some pages are there, others are as they were before. No
        process may live."""
        random = self.scheduler.random
        now = self.files
        self.files = dict(self._durable)
        for folder in sorted({_folder(name) for name in (*now, *self._durable)}):
            if random.random() < 0.5:  # the file system had just written its journal
                self._rename(folder, now)
        self._durable = dict(self.files)
        kept: dict[File, File] = {}
        for name, file in self.files.items():
            if file not in kept:
                survives = random.random()
                pages = [random.random() < survives for _ in _pages(file)]
                size = len(file.data) if random.random() < 0.5 else len(file.durable)
                kept[file] = File(_mixed(file.durable, bytes(file.data), pages)[:size].ljust(size, b"\0"))
            self.files[name] = self._durable[name] = kept[file]
        self.boot = random.randbytes(16)

    def keep(self, folder: str) -> dict[str, bytes]:
        """A copy, as a backup has it."""
        return {name: bytes(file.data) for name, file in self.files.items() if name.startswith(f"{folder}/")}

    def put_back(self, folder: str, copy: dict[str, bytes]) -> None:
        """The backup's files in place of the folder's."""
        self.remove(folder)
        for name, data in copy.items():
            if _PARKED in name:
                continue
            self.files[name] = self._durable[name] = File(data)

    def tear(self, name: str) -> None:
        """Cut the file off somewhere."""
        file = self.files.get(name)
        if file is not None and file.data:
            data = bytes(file.data[: int(self.scheduler.random.random() * len(file.data))])
            self.files[name] = self._durable[name] = File(data)

    def remove(self, folder: str) -> None:
        for name in [each for each in self.files if each.startswith(f"{folder}/") and _PARKED not in each]:
            del self.files[name]
            self._durable.pop(name, None)

    def died(self, process: Process) -> None:
        """What it had open and mapped is closed, with its locks; what it wrote stays."""
        for number in [n for n, each in self._open.items() if each.process is process]:
            self.close(number)
        for file in {*self.files.values(), *self._durable.values()}:
            for each in [each for each in file.locks if each.process is process]:
                del file.locks[each]

    # -- descriptors

    def open(self, name: str, file: File | None) -> int:
        task = self.scheduler.task
        assert task is not None
        self._next += 1
        self._open[self._next] = Description(name, file, task.process)
        return self._next

    def description(self, number: int) -> Description:
        return self._open[number]

    def close(self, number: int) -> None:
        self._open.pop(number).close()

    def file(self, number: int) -> File:
        file = self._open[number].file
        assert file is not None
        return file

    def lock(self, number: int, *, alone: bool) -> None:
        """Raises BlockingIOError."""
        who = self._open[number]
        locks = self.file(number).locks
        if any(each is not who and (alone or exclusive) for each, exclusive in locks.items()):
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        locks[who] = alone

    def _rename(self, folder: str, names: dict[str, File]) -> None:
        self.files = {name: file for name, file in self.files.items() if not _is_in(name, folder)}
        self.files |= {name: file for name, file in names.items() if _is_in(name, folder)}


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _is_in(name: str, folder: str) -> bool:
    return _folder(name) == folder


def _pages(file: File) -> range:
    return range(0, max(len(file.data), len(file.durable)), _PAGE_BYTES)


def _mixed(old: bytes, new: bytes, is_new: list[bool]) -> bytes:
    """Page for page one or the other; what neither has is zero."""
    size = max(len(old), len(new))
    both = old.ljust(size, b"\0"), new.ljust(size, b"\0")
    pages = [
        both[chosen][place * _PAGE_BYTES : (place + 1) * _PAGE_BYTES] for place, chosen in enumerate(is_new)
    ]
    return b"".join(pages)
