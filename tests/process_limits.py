"""Limits of the test's own process."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def limited(kind: int, most: int) -> Iterator[None]:
    """`kind`: one of the module `resource`."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def no_more_open_files() -> AbstractContextManager[None]:
    """Let each new file, pipe and socket of this process fail, also when other threads close theirs.

    Only the numbers 0 to 2 stay allowed, and these are always in use."""
    return limited(resource.RLIMIT_NOFILE, 3)
