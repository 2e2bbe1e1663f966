"""Read single keys without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["asked_to_stop", "single_keys"]


@contextmanager
def single_keys() -> Iterator[None]:
    """In a terminal, deliver each key at once without showing it. Ctrl-C stays a signal."""
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def asked_to_stop(seconds: float) -> bool:
    """Return whether `q` was pressed within `seconds`. Without a terminal it never is."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(readable) and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q")
