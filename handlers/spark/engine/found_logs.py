"""Decides which of the found logs this handler serves, and which of its tables are gone."""

from __future__ import annotations

import time
from collections.abc import Collection

from handlers.spark.engine.table.sink import TableSink
from handlers.spark.engine.tables import Tables
from handlers.spark.log.owner import Owner, fits
from handlers.spark.read.inspection import end_of
from handlers.spark.table_ref import TableRef

_ABANDONED = 600.0
"""Age in seconds of a log's newest segment from which nobody is assumed to serve the log."""

_SOON = 60.0
_SELDOM = 3600.0
"""Bounds of the seconds until a quiet log is checked again. Between them, the interval equals the time since
something last happened. If this worker put a segment less than `_SOON` ago, it knows the log's end."""


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
        if known is not None and known.is_loaded and not anew:
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
        return min(max(_SOON, self._quiet(sink)), _SELDOM) if sink.is_loaded else _SOON

    def _quiet(self, sink: TableSink) -> float:
        """Seconds since something was put, or a partition was assigned or revoked."""
        now, current = time.time(), self._tables.partitions()
        if current != self._then:
            self._then, self._since = current, now
        return now - max(sink.last_put, self._since)

    def _is_gone(self, ref: TableRef) -> bool:
        """Whether the table does not exist, and nothing in the log would create it."""
        if ref.path is None or self._files.exists(f"{ref.path}/_delta_log"):
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
            last_put = max(last_put, self._tables.world.packs.streams.newest_ms(head.stream))
        until = last_put / 1000 + _ABANDONED
        if now < until:
            self._foreign[folder] = min(until, now + _ABANDONED), current
        return now < until
