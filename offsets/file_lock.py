"""A lock between processes, on a permanent file."""

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


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Lock this file, made if it does not exist, and wait up to `seconds` for the lock.

    The system releases the lock if the process ends.

    Raises LockHeld, and OSError if the file cannot be made."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LockHeld(
                        f"{path} has been locked by another process for {seconds:g} s: `fuser` shows which"
                    ) from None
                time.sleep(_AGAIN_SECONDS)
        yield
    finally:
        os.close(descriptor)
