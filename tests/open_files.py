"""Processes that may open no more files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_more_open_files() -> Iterator[None]:
    """Let each new file, pipe and socket of this process fail, also when other threads close theirs.

    Only the numbers 0 to 2 stay allowed, and these are always in use.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
