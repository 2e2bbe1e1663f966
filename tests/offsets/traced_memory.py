"""The memory that trackers hold."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sortedcontainers

import offsets

__all__ = ["memory_of_trackers"]

_CODE = [
    tracemalloc.Filter(True, f"{Path(str(each.__file__)).parent}/*") for each in (offsets, sortedcontainers)
]


@contextmanager
def memory_of_trackers() -> Iterator[Callable[[], int]]:
    """The bytes that code of `offsets` allocates within and holds, without what other threads do."""
    tracemalloc.start()
    try:
        yield lambda: sum(
            trace.size for trace in tracemalloc.take_snapshot().filter_traces(_CODE).statistics("filename")
        )
    finally:
        tracemalloc.stop()
