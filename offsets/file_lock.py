"""Locks between processes, on permanent files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_AGAIN_SECONDS = 0.002


class LockHeld(Exception):
    """Another process has held the lock all the time. The text names the file and how to find the holder."""


class FileLock:
    """A lock on its own file in a folder. The system releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock. Returns False if another process has it. Raises OSError."""
        if self._descriptor is not None:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Lock this file, made with its folder if it does not exist, and wait up to `seconds` for the lock.

    Raises LockHeld, and OSError if the file cannot be made."""
    lock = FileLock(path)
    deadline = time.monotonic() + seconds
    while not lock.take():
        if time.monotonic() > deadline:
            held = f"{path} has been locked by another process for {seconds:g} s"
            raise LockHeld(f"{held}: `fuser` shows which")
        time.sleep(_AGAIN_SECONDS)
    try:
        yield
    finally:
        lock.release()
