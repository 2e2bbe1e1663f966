"""What earlier runs left: logs whose tables no batch may come for, and tables that are gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from handlers.logs import get_logger
from handlers.spark.engine.background import Background
from handlers.spark.locations import PENDING
from handlers.spark.log.owner import Owner, look_in, owner_of
from handlers.spark.log.stores.interface import Files

__all__ = ["Search"]

_TURN = 60.0
"""Seconds between two rounds."""

_LOOK = 1.0
"""Seconds between two looks at the partitions."""

_log = get_logger("spark")


class Search(Background):
    """One thread, `spark-search`, from `start` to `end`.

    Every log is read in, so that what waits in it is merged though no batch of its table comes; and each
    minute one that is served is looked at, as another worker, or a replay, may have put more. What cannot be
    read is tried again each minute, without keeping the others waiting; and a log that another handler of
    this process serves is taken over when that one is closed.
    """

    def __init__(
        self,
        files: Files,
        logs: str,
        *,
        serve: Callable[[str, Owner], bool],
        clear: Callable[[], None],
        partitions: Callable[[], Collection[tuple[str, int]]] = tuple,
    ) -> None:
        """`logs`: the folder of all logs. `serve` is given each log's folder and owner, and reads it in if it
        is free and this handler's; it returns whether there is no need to be given it again. `clear`, called
        each round, lets go of tables that are gone. Both may raise. `partitions`: this worker's; when some
        come, all folders are looked into again."""
        super().__init__("spark-search")
        self._partitions = partitions
        self._searched_for = frozenset(partitions())
        self._files = files
        self._logs = logs
        self._serve = serve
        self._clear = clear
        self._turn = threading.Lock()  # one round at a time
        self._folders = [logs]  # to be looked into
        self._added: set[str] = set()  # by any thread; what is added in a round is looked at in the next
        self._owners: dict[str, Owner | None] = {}  # by the log's folder; None: not read yet

    def _run(self) -> None:
        while not self._stopped.is_set():
            end = time.monotonic() + _TURN
            self.round()
            while time.monotonic() < end and self._searched_for == frozenset(self._partitions()):
                if self._stopped.wait(_LOOK):
                    return

    def round(self) -> None:
        """Look into what was not looked into, read in what was not read in. Any thread."""
        with self._turn:
            partitions = frozenset(self._partitions())
            if partitions - self._searched_for:
                self._folders = [self._logs]
            self._searched_for = partitions
            self._round()

    def add(self, log_folder: str) -> None:
        """A log to look at from now on: one that is signed, or that nobody serves any more. Any thread."""
        self._added.add(log_folder)

    def _round(self) -> None:
        self._find()
        while self._added:
            self._owners.setdefault(self._added.pop(), None)
        for folder in list(self._owners):
            if self._stopped.is_set():
                return
            try:
                self._read_in(folder)
            except Exception as error:
                _log.warning("spark_log_not_read", log=folder, error=str(error))
        try:
            self._clear()
        except Exception as error:
            _log.warning("spark_tables_not_cleared", error=str(error))

    def _find(self) -> None:
        folders, self._folders = self._folders, []
        while folders and not self._stopped.is_set():
            here = folders.pop()
            try:
                is_log, more = look_in(self._files, here, self._logs)
            except Exception as error:
                _log.warning("spark_logs_not_listed", folder=here, error=str(error))
                self._folders.append(here)
                continue
            folders += reversed(more)
            if is_log:
                self._owners.setdefault(f"{here}/{PENDING}", None)

    def _read_in(self, folder: str) -> None:
        owner = self._owners[folder]
        if owner is None:
            try:
                owner = self._owners[folder] = owner_of(self._files, folder)
            except FileNotFoundError:  # the log was removed meanwhile
                del self._owners[folder]
                return
        if self._serve(folder, owner):
            del self._owners[folder]
