"""Signals that come while `binlane run` is being loaded: there is nothing to drain yet."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path


def take_early_signals() -> None:
    """Let SIGTERM and SIGINT end this process with 0 until its worker takes them, if it is `binlane run`."""
    names = [Path(each).name for each in sys.orig_argv[1:]]
    if ("binlane", "run") in pairwise(names):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: os._exit(0))
