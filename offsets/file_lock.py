"""A lock between processes, on a file that stays."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_AGAIN_SECONDS = 0.002


class LockHeld(Exception):
    """Another process has had the lock all the time. The text says which file, and how to find that."""


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Have the lock on this file, which is made if need be, and wait for it that long.

    The system takes it back from a process that ends.

    Raises LockHeld, and OSError where there can be no such file."""
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
                        f"{path} has been held by another process for {seconds:g} s: `fuser` tells by which"
                    ) from None
                time.sleep(_AGAIN_SECONDS)
        yield
    finally:
        os.close(descriptor)
