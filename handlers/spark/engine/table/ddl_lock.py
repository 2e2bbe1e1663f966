"""Keeps OPTIMIZE and VACUUM apart from the source's statements: they never run at the same time.

A statement renames, swaps or removes folders. A running OPTIMIZE would write into a folder that is gone. A
VACUUM that has listed a table's files would remove those of the next table there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from handlers.logs import get_logger

_log = get_logger("spark")


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
