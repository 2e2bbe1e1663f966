"""OPTIMIZE and VACUUM on the one side, the source's statements on the other: never at the same time.

A statement gives folders other names, swaps or removes them. An OPTIMIZE that has begun would write into a
folder that is gone, and a VACUUM that has listed the files of one table remove those of the next one there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from handlers.logs import get_logger

_log = get_logger("spark")


class DDLLock:
    """Any number of one side at once; statements go first. Any thread.

    Taken after a table's `taking`, and before its `merging` and a slot of Spark. A statement that is followed
    settles other tables, and so takes their `taking`, of which one may wait here with a statement of its own:
    therefore statements never wait for each other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._statements = 0  # those that wait, too
        self._upkeep: list[str] = []

    @contextmanager
    def statement(self, table: str) -> Iterator[None]:
        """A statement of this source table is followed within; what it waits for is logged once."""
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
        """`what` is done within: `VACUUM of shop.orders`."""
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
    """The one of all handlers of this process that keep tables below this folder or URI."""
    with _lock:
        return _locks.setdefault(root, DDLLock())
