"""How much of one table's log is merged at once: less, after merges that failed or killed the worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from handlers.logs import get_logger
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.log.stores.interface import AlreadyThere, Files

FOLDER = "_merging"
_LEAST = 4 * 2**20
"""Bytes: less is not worth a commit, and begins without being written down."""

_log = get_logger("spark")


class MergeSize:
    """The bytes of segments of one merge. One thread at a time, the one that merges.

    A driver that runs out of memory takes the worker with it, and the next one would begin the same merge. So
    each large merge is written down before it begins, as the name of an empty file in the log's folder
    `_merging`: one that is still there was not finished, and half of it is tried then. When nothing is left
    to merge, all of that is forgotten."""

    def __init__(self, files: Files, log_folder: str, most: int, *, table: str) -> None:
        """`most`: bytes, where nothing has failed."""
        self._files = files
        self._folder = f"{log_folder}/{FOLDER}"
        self._most = most
        self._table = table
        self._limit: int | None = None  # None: not looked at yet
        self._begun: set[int] = set()  # those that are written down

    def limit(self) -> int:
        """So many bytes may be merged at once. Raises what the store raises."""
        if self._limit is None:
            names = [entry.name for entry in self._files.list(self._folder)]
            self._begun = {int(name) for name in names if name.isdecimal()}
            self._limit = self._most
            if self._begun:
                self._halve(min(self._begun))
        return self._limit

    @contextmanager
    def attempt(self, size: int) -> Iterator[None]:
        """Within, so many bytes are merged. Raises what the store raises, and what is raised within."""
        if size > _LEAST:
            with suppress(AlreadyThere):
                self._files.put(f"{self._folder}/{size:020d}", b"")
            self._begun.add(size)
        try:
            yield
        except MergeConflict:
            raise  # another writer was faster: that tells nothing of the size
        except Exception:
            if size > _LEAST:  # one that is smaller tells nothing of it either
                self._halve(size)
            raise

    def done(self) -> None:
        """Nothing is left to merge. Raises what the store raises."""
        for size in sorted(self._begun):
            self._files.delete(f"{self._folder}/{size:020d}")
            self._begun.discard(size)
        self._limit = self._most

    def _halve(self, failed: int) -> None:
        before = self._most if self._limit is None else self._limit
        self._limit = min(before, max(_LEAST, failed // 2))
        if self._limit < before:
            _log.warning("spark_merges_made_smaller", table=self._table, failed=failed, limit=self._limit)
