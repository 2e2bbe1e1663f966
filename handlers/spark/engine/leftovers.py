"""Finds what earlier runs left: logs of tables that may get no more batches, and tables that are gone.
Decides which of the logs this handler serves."""

from __future__ import annotations

import heapq
import math
import random
import threading
import time
from collections.abc import Callable, Collection

from handlers.hanging_calls import Background
from handlers.logs import get_logger
from handlers.spark.delta.log_files import has_commits
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.engine.tables import Tables
from handlers.spark.locations import PENDING
from handlers.spark.log.beside import Owner, fits, look_in, owner_of
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.log_heads import end_of
from handlers.spark.table_ref import TableRef

_log = get_logger("spark")

_TURN = 60.0
"""Seconds until an unreadable log is tried again, and until an added log is first checked."""

_LOOK = 1.0
"""Seconds between two checks of the partitions and of the due logs."""

_ABANDONED = 600.0
"""Age in seconds of a log's newest segment from which nobody is assumed to serve the log."""

_SOON = 60.0
_SELDOM = 3600.0
"""Bounds of the seconds until a quiet log is checked again. Between them, the interval equals the time since
something last happened. If this worker put a segment less than `_SOON` ago, it knows the log's end."""


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
        serve: Callable[..., float | None],
        partitions: Callable[[], Collection[tuple[str, int]]] = tuple,
    ) -> None:
        """`logs`: the folder of all logs. `serve` gets each log's folder and owner, and loads the log if it
        is free and belongs to this handler. With `anew=True` it loads a known one, too. It returns the
        seconds until its next call for this log, or None if none is needed. It may raise. `partitions`: this
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
        self._added: set[str] = set()  # by any thread
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

    def add(self, log_folder: str) -> None:
        """Add a log to be checked from now on: a loaded one, or one that nobody serves now. Any thread."""
        self._added.add(log_folder)

    def _take_added(self, now: float) -> None:
        while self._added:
            folder = self._added.pop()
            self._owners.setdefault(folder)
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


class FoundLogs:
    """Answers the questions of Search. One thread at a time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._files = tables.world.files
        self._locations = tables.world.locations
        # Log folder -> until when (seconds since 1970) it is skipped, and the partitions at that time.
        self._foreign: dict[str, tuple[float, Collection[tuple[str, int]]]] = {}
        self._then = tables.partitions()
        self._since = time.time()  # since when this worker has these partitions

    def serve(self, folder: str, owner: Owner, *, anew: bool) -> float | None:
        """See Search. Other handlers may have logs here, too."""
        tables = self._tables
        ref = self._locations.ref(owner.database, owner.table)
        if ref.log_folder != folder or not fits(owner, tables.owner_of(owner.database, owner.table)):
            return None
        known = tables.serving(folder)
        if known is not None and not tables.has(known):
            return _SOON
        if known is not None and known.end.is_loaded and not anew:
            put_ago = time.time() - known.last_put
            if 0 <= put_ago < _SOON:
                return _SOON - put_ago
        return self._look(folder, owner, ref, known)

    def _look(self, folder: str, owner: Owner, ref: TableRef, known: TableSink | None) -> float | None:
        """`known`: this handler's sink that serves the log."""
        tables = self._tables
        has_grown = known is None or known.is_behind()
        if has_grown and self._is_foreign(folder):
            if known is not None:
                tables.let_go(known)  # it was idle, and its owner continues it
            return max(_SOON, self._foreign[folder][0] - time.time())
        if known is None:
            if self._is_gone(ref):
                return None
            if owner.prefix is None:
                tables.check_prefix(folder)  # before it is claimed: another handler may be able to read it
        with tables.used(owner.database, owner.table) as sink:
            if not tables.claim_free(sink):
                return _SOON
            sink.load(has_grown=has_grown)
        tables.remove_gone(sink, lambda: self._is_gone(ref))
        return min(max(_SOON, self._quiet(sink)), _SELDOM) if sink.end.is_loaded else _SOON

    def _quiet(self, sink: TableSink) -> float:
        """Seconds since something was put, or a partition was assigned or revoked."""
        now, current = time.time(), self._tables.partitions()
        if current != self._then:
            self._then, self._since = current, now
        return now - max(sink.last_put, self._since)

    def _is_gone(self, ref: TableRef) -> bool:
        """Whether the table does not exist, and nothing in the log would create it."""
        if ref.path is None or has_commits(self._files, ref.path):
            return False
        end = end_of(self._files, ref.log_folder)
        if end is None or not end.is_alone:
            return False
        return not end.head.segment.rows and end.head.segment.statement is None

    def _is_foreign(self, folder: str) -> bool:
        """Whether another worker has the partitions of a log, and so merges it. After a while without new
        segments, no worker is assumed to."""
        current, now = self._tables.partitions(), time.time()
        until, then = self._foreign.get(folder, (0.0, ()))
        if now < until and then == current:
            return True
        self._foreign.pop(folder, None)
        end = end_of(self._files, folder)
        head = None if end is None else end.head
        if head is None or not current.isdisjoint(head.marks.known):
            return False
        last_put = head.segment.written_ms
        if head.stream is not None:  # its worker may put packs only
            last_put = max(last_put, self._tables.world.packs.newest_ms(head.stream))
        until = last_put / 1000 + _ABANDONED
        if now < until:
            self._foreign[folder] = min(until, now + _ABANDONED), current
        return now < until
