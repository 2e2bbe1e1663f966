"""Folders that are full, or that cannot be written, though nobody may notice who runs as root."""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["SmallDisk", "read_only"]

_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10  # linux/fs.h


class SmallDisk:
    """A folder with so many MiB of its own: a tmpfs. Only root can have one: else `mounted` is false."""

    def __init__(self, folder: Path, mib: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "binlane-storm", str(folder)]
        self.mounted = os.geteuid() == 0 and not subprocess.run(command, check=False).returncode
        if self.mounted:
            atexit.register(self.close)

    @contextmanager
    def full(self, pid: int) -> Iterator[None]:
        """No byte goes into it. Where it is no disk of its own, the process can write none to any file."""
        if not self.mounted:
            soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
            try:
                yield
            finally:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
            return
        filling = self.folder / "filling"
        try:
            with contextlib.suppress(OSError), filling.open("wb", buffering=0) as out:
                for size in (1 << 16, 1 << 9):
                    with contextlib.suppress(OSError):
                        while out.write(bytes(size)):
                            pass
            yield
        finally:
            filling.unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            self.mounted = False
            subprocess.run(["umount", "-l", str(self.folder)], check=False)


@contextmanager
def read_only(folder: Path, *, with_files: bool) -> Iterator[None]:
    """Nothing in it can be made, renamed or removed, by root neither; `with_files`: nor changed."""
    paths = [folder, *(folder.rglob("*") if with_files else ())]
    kept = []
    try:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                kept.append((path, path.stat().st_mode & 0o7777))
                _protect(path, True)
        yield
    finally:
        for path, mode in kept:
            with contextlib.suppress(FileNotFoundError):
                _protect(path, False, mode)


def _protect(path: Path, protected: bool, mode: int = 0) -> None:
    if os.geteuid():
        path.chmod(path.stat().st_mode & 0o7555 if protected else mode)
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flags = array.array("i", [0])
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        flags[0] = flags[0] | _IMMUTABLE if protected else flags[0] & ~_IMMUTABLE
        fcntl.ioctl(descriptor, _SET_FLAGS, flags)
    finally:
        os.close(descriptor)
