"""Limits a table's merges: how much is merged at once, and no OPTIMIZE or VACUUM beside a statement."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from handlers.logs import get_logger
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.log.stores.interface import AlreadyThere, Files
from handlers.spark.runtime.start import SparkStarts

_log = get_logger("spark")

FOLDER = "_merging"
_LEAST = 4 * 2**20
"""In bytes. Less is not worth a commit, and is not recorded before it begins."""


class DDLLock:
    """Any number of one kind at once. Statements go first. Any thread.

    It is taken after a table's `taking`, and before its `merging` and a slot of Spark. A statement settles
    other tables while it is followed, and so takes their `taking`. One of those tables may wait here with a
    statement of its own, so statements never wait for each other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._statements = 0  # including waiting ones
        self._upkeep: list[str] = []

    @contextmanager
    def statement(self, table: str) -> Iterator[None]:
        """Follow a statement of this source table inside the block. Logs once what it waits for."""
        with self._changed:
            self._statements += 1
            if self._upkeep:
                _log.info("spark_ddl_waits", table=table, until="; ".join(self._upkeep))
            self._changed.wait_for(lambda: not self._upkeep)
        try:
            yield
        finally:
            with self._changed:
                self._statements -= 1
                self._changed.notify_all()

    @contextmanager
    def upkeep(self, what: str) -> Iterator[None]:
        """Run `what` inside the block, such as `VACUUM of shop.orders`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._statements)
            self._upkeep.append(what)
        try:
            yield
        finally:
            with self._changed:
                self._upkeep.remove(what)
                self._changed.notify_all()


_lock = threading.Lock()  # guards the dict
_locks: dict[str, DDLLock] = {}


def ddl_lock_of(root: str) -> DDLLock:
    """The lock shared by all handlers of this process that keep tables below this folder or URI."""
    with _lock:
        return _locks.setdefault(root, DDLLock())


class MergeSize:
    """The bytes of segments in one merge. One thread at a time, the one that merges.

    A driver that runs out of memory takes the worker with it, and the next worker would begin the same merge.
    So each large merge is recorded before it begins: its size is the name of an empty file in the log's
    folder `_merging`. A file that still exists names an unfinished merge, and half its size is tried. When
    nothing is left to merge, all files are removed."""

    def __init__(self, files: Files, log_folder: str, most: int, *, table: str) -> None:
        """`most`: limit in bytes while nothing has failed."""
        self._files = files
        self._folder = f"{log_folder}/{FOLDER}"
        self._most = most
        self._table = table
        self._limit: int | None = None  # None: not read yet
        self._begun: set[int] = set()  # those that are recorded

    def limit(self) -> int:
        """The most bytes that may be merged at once. Raises what the store raises."""
        if self._limit is None:
            names = [entry.name for entry in self._files.list(self._folder)]
            self._begun = {int(name) for name in names if name.isdecimal()}
            self._limit = self._most
            if self._begun:
                self._halve(min(self._begun))
        return self._limit

    @contextmanager
    def attempt(self, size: int) -> Iterator[None]:
        """Merge `size` bytes inside the block. Raises what the store raises, and what is raised inside."""
        if size > _LEAST:
            with suppress(AlreadyThere):
                self._files.put(f"{self._folder}/{size:020d}", b"")
            self._begun.add(size)
        try:
            yield
        except (MergeConflict, SparkStarts):
            raise  # another writer was faster, or nobody tried: that says nothing about the size
        except Exception:
            if size > _LEAST:  # a smaller merge says nothing about the size either
                self._halve(size)
            raise

    def done(self) -> None:
        """Forget failed merges, because nothing is left to merge. Raises what the store raises."""
        for size in sorted(self._begun):
            self._files.delete(f"{self._folder}/{size:020d}")
            self._begun.discard(size)
        self._limit = self._most

    def _halve(self, failed: int) -> None:
        before = self._most if self._limit is None else self._limit
        self._limit = min(before, max(_LEAST, failed // 2))
        if self._limit < before:
            _log.warning("spark_merges_made_smaller", table=self._table, failed=failed, limit=self._limit)
