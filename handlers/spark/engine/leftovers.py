"""Finds what earlier runs left: logs of tables that may get no more batches, and tables that are gone."""

from __future__ import annotations

import heapq
import math
import random
import threading
import time
from collections.abc import Callable, Collection
from typing import Protocol

from handlers.logs import get_logger
from handlers.spark.engine.background import Background
from handlers.spark.locations import PENDING
from handlers.spark.log.owner import Owner, look_in, owner_of
from handlers.spark.log.stores.interface import Files

_TURN = 60.0
"""Seconds until an unreadable log is tried again, and until an added log is first checked."""

_LOOK = 1.0
"""Seconds between two checks of the partitions and of the due logs."""

_log = get_logger("spark")


class Serve(Protocol):
    """See Search."""

    def __call__(self, folder: str, owner: Owner, *, anew: bool) -> float | None: ...


class Search:
    """One thread, `spark-search`, from `start` to `end`.

    Every log is loaded, so its waiting segments are merged even if no batch of its table arrives. Later it is
    checked now and then, because another worker or a replay may have put more. Each log has its own time for
    that, so thousands are never checked together. An unreadable log is tried again each minute and does not
    delay the others. A log that another handler of this process serves is taken over when that handler
    closes."""

    def __init__(
        self,
        files: Files,
        logs: str,
        *,
        serve: Serve,
        partitions: Callable[[], Collection[tuple[str, int]]] = tuple,
    ) -> None:
        """`logs`: the folder of all logs. `serve` gets each log's folder and owner, and loads the log if it
        is free and belongs to this handler. `anew`: load it even if it is known. `serve` returns the seconds
        until its next call for this log, or None if none is needed. It may raise. `partitions`: this
        worker's. When new ones are assigned, all folders are searched again."""
        self.thread = Background("spark-search", self._run)
        self._partitions = partitions
        self._searched_for = frozenset(partitions())
        self._files = files
        self._logs = logs
        self._serve = serve
        self._turn = threading.Lock()  # one round at a time
        self._folders = [logs]  # to be searched
        self._find_at = 0.0  # monotonic
        self._added: set[str] = set()  # by any thread, like the next
        self._told: dict[str, Owner] = {}
        self._owners: dict[str, Owner | None] = {}  # log folder -> owner, None until it is read
        # When each log is checked next (monotonic), and the same in order, with outdated times among them.
        self._due: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []

    def _run(self) -> None:
        self.round()
        while not self.thread.stopped.wait(_LOOK):
            partitions = frozenset(self._partitions())
            if partitions - self._searched_for:
                self.round()
            else:
                self._searched_for = partitions
                self.look(time.monotonic())

    def round(self) -> None:
        """Search folders that were not searched yet, and check all logs. Any thread."""
        with self._turn:
            partitions = frozenset(self._partitions())
            if partitions - self._searched_for:
                self._folders = [self._logs]
            self._searched_for = partitions
            self._find()
            now = time.monotonic()
            self._take_added(now)
            for folder in list(self._owners):
                self._look_at(folder, now, anew=True)

    def look(self, now: float) -> None:
        """Check the due logs (`now`: monotonic seconds), and retry folders that could not be searched. Any
        thread."""
        with self._turn:
            if self._folders and self._find_at <= now:
                self._find()
            self._take_added(now)
            while self._order and self._order[0][0] <= now:
                due, folder = heapq.heappop(self._order)
                if self._due.get(folder) == due:
                    self._look_at(folder, now, anew=False)

    def add(self, log_folder: str, owner: Owner | None = None) -> None:
        """Add a log to be checked from now on: a signed one, or one that nobody serves any more. `owner`: the
        log's owner, if known. Any thread."""
        if owner is not None:
            self._told[log_folder] = owner
        self._added.add(log_folder)

    def _take_added(self, now: float) -> None:
        while self._added:
            folder = self._added.pop()
            told = self._told.pop(folder, None)
            if self._owners.get(folder) is None:
                self._owners[folder] = told
            if self._due.get(folder, math.inf) > now + _TURN:
                self._plan(folder, now + _TURN)

    def _plan(self, folder: str, due: float) -> None:
        self._due[folder] = due
        heapq.heappush(self._order, (due, folder))

    def _look_at(self, folder: str, now: float, *, anew: bool) -> None:
        if self.thread.stopped.is_set():
            return
        wait: float | None = _TURN
        try:
            wait = self._read_in(folder, anew=anew)
        except Exception as error:
            _log.warning("spark_log_not_read", log=folder, error=str(error))
        if wait is None:
            self._owners.pop(folder, None)
            self._due.pop(folder, None)
        else:  # spread the times of logs that were loaded together
            self._plan(folder, max(now, time.monotonic()) + wait * random.uniform(0.8, 1.2))

    def _find(self) -> None:
        folders, self._folders = self._folders, []
        self._find_at = time.monotonic() + _TURN
        while folders and not self.thread.stopped.is_set():
            here = folders.pop()
            try:
                is_log, more = look_in(self._files, here, self._logs)
            except Exception as error:
                _log.warning("spark_logs_not_listed", folder=here, error=str(error))
                self._folders.append(here)
                continue
            folders += reversed(more)
            if is_log:
                self.add(f"{here}/{PENDING}")

    def _read_in(self, folder: str, *, anew: bool) -> float | None:
        owner = self._owners[folder]
        if owner is None:
            try:
                owner = self._owners[folder] = owner_of(self._files, folder)
            except FileNotFoundError:  # the log was removed meanwhile
                return None
        return self._serve(folder, owner, anew=anew)
