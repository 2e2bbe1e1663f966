"""Handling of signals while `binlane run` is loading: nothing has to be drained yet."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path


def take_early_signals() -> None:
    """In `binlane run`, let SIGTERM and SIGINT exit with 0 until the worker installs its own handlers."""
    names = [Path(each).name for each in sys.orig_argv[1:]]
    if ("binlane", "run") in pairwise(names):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: os._exit(0))
