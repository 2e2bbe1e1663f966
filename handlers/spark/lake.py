"""The Spark tables of one handler: a sink for each source table, and the threads behind them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from handlers.api import Batch, HandlerContext
from handlers.mysql_ddl import TableName
from handlers.spark.column_types import override
from handlers.spark.delta import applier_for
from handlers.spark.keeper import Keeper
from handlers.spark.leftovers import Search
from handlers.spark.log.files import files_for
from handlers.spark.log.owner import Owner, check_prefix, fits, logs_below, sign
from handlers.spark.log.segments import SegmentLog
from handlers.spark.looking import head_of
from handlers.spark.merger import Merger
from handlers.spark.options import SparkOptions
from handlers.spark.owners import Owners
from handlers.spark.places import Places
from handlers.spark.section import SparkSection
from handlers.spark.session import acquire, release
from handlers.spark.sink import TableSink
from handlers.spark.table_ref import TableRef
from handlers.spark.table_work import TableWork, World

__all__ = ["Lake"]

_owners: Owners[TableSink] = Owners()
_whose: WeakKeyDictionary[TableSink, Owner] = WeakKeyDictionary()


class Lake:
    """Between `open` and `close`; any thread may hand over batches."""

    def __init__(self, options: SparkOptions, context: HandlerContext) -> None:
        """Starts Spark, unless another handler has. Raises as SparkHandler.open."""
        section = SparkSection.model_validate(dict(context.spark))
        self._options = options
        self._spark = acquire(section, context.folder, context.worker)
        try:
            places = Places(options, section, context.folder)
            self._world = World(
                options=options,
                context=context,
                spark=self._spark,
                places=places,
                files=files_for(places.root, self._spark),
                applier=applier_for(options),
                overrides={name: override(text) for name, text in options.columns.items()},
                settle=self._settle,
                databases_of=self._databases_of,
                own=threading.local(),
            )
        except BaseException:
            release()
            raise
        self._lock = threading.Lock()  # guards the three below
        self._sinks: dict[tuple[str, str], TableSink] = {}
        self._logs: dict[TableSink, SegmentLog] = {}
        self._in_use: Counter[TableSink] = Counter()
        self._merger = Merger(options.merge, threads=section.concurrency)
        self._keeper = Keeper(options.upkeep, self._known)
        files, logs = self._world.files, self._world.places.logs
        self._search = Search(files, logs, serve=self._serve, clear=self._clear)
        self._runs = False

    def start(self) -> None:
        """Begin to merge what waits, and to watch Spark."""
        self._runs = True
        if self._world.context.stop_worker is not None:
            self._spark.watch(self._world.context.stop_worker)
        if self._world.applier is not None:
            self._merger.start()
            self._keeper.start()
            self._search.start()

    def handle(self, batch: Batch) -> None:
        with self._used(batch.database, batch.name) as sink:
            self._claim(sink)
            sink.take(batch)

    def close(self) -> None:
        try:
            if self._runs and self._world.applier is not None:
                self._search.close()
                self._keeper.close()
                self._merger.close()
        finally:
            for sink in self._known():
                _owners.release(sink.log_folder, sink)
            release()

    def check(self) -> None:
        """Ask Spark, and the tables' file system."""
        self._spark.session.sql("SELECT 1").collect()
        self._world.files.list(self._world.places.logs)

    def status(self) -> Mapping[str, Any]:
        now = time.time()
        tables = []
        for sink in self._known():
            waiting = sink.waiting
            tables.append(
                {
                    "table": sink.name,
                    "waiting_rows": waiting.rows,
                    "waiting_bytes": waiting.bytes,
                    "waiting_seconds": 0.0 if waiting.since is None else max(0.0, now - waiting.since),
                    "merged_source_time_ms": sink.merged_source_ms,
                    "error": sink.fault,
                }
            )
        return {"spark": self._spark.status(), "tables": tables}

    # ---- tables

    def _known(self) -> list[TableSink]:
        """Those that this lake serves."""
        with self._lock:
            sinks = list(self._sinks.values())
        return [sink for sink in sinks if _owners.of(sink.log_folder) is sink]

    @contextmanager
    def _used(self, database: str, table: str) -> Iterator[TableSink]:
        """The sink of a table, which is not let go of meanwhile."""
        with self._lock:
            sink = self._sinks.get((database, table))
            if sink is None:
                sink = self._sinks[database, table] = self._made(database, table)
            self._in_use[sink] += 1
        try:
            yield sink
        finally:
            with self._lock:
                self._in_use[sink] -= 1

    def _made(self, database: str, table: str) -> TableSink:
        work = TableWork(database, table, self._world)
        log = SegmentLog(self._world.files, work.ref.log_folder, is_table=self._world.applier is None)
        offer = self._merger.offer
        sink = TableSink(database, table, work, log, sign=self._sign, offer=offer, forget=self._forget)
        self._logs[sink] = log
        _whose[sink] = self._owner(database, table)
        return sink

    def _claim(self, sink: TableSink) -> None:
        other = _owners.of(sink.log_folder)
        if other is not None and not fits(_whose[other], _whose[sink]):
            return  # it is refused what it is about to take, and the other one goes on
        before = _owners.claim(sink.log_folder, sink)
        if before is not None:
            sink.take_over(before)

    def _databases_of(self, table: str) -> list[str]:
        """Where there may be a table of that name: also another handler's, or what an earlier run left."""
        places, mode = self._world.places, self._options.mode
        found = []
        for folder, owner in logs_below(self._world.files, places.logs):
            own = (owner.table, owner.mode) == (table, mode)
            if own and places.ref(owner.database, table).log_folder == folder:
                found.append(owner.database)
        return found

    def _settle(self, name: TableName) -> None:
        sink = _owners.of(self._world.places.ref(*name).log_folder)
        if sink is not None:
            sink.settle()
            return
        with self._used(*name) as own:
            self._claim(own)
            own.settle()

    def _forget(self, database: str, table: str) -> None:
        sink = _owners.of(self._world.places.ref(database, table).log_folder)
        if sink is not None:
            sink.forget()

    def _sign(self, sink: TableSink) -> None:
        """Write down whose log it is, and see to it that this handler can read it."""
        files, folder = self._world.files, sink.log_folder
        places = self._world.places
        signed = places.signed_folder(places.ref(sink.database, sink.table))
        found = sign(files, signed, _whose[sink])
        if found is None or found.prefix is None:
            self._check_prefix(folder)

    def _owner(self, database: str, table: str) -> Owner:
        options = self._options
        return Owner(database, table, options.mode, options.prefix, options.table or "")

    def _check_prefix(self, folder: str) -> None:
        head = head_of(self._world.files, folder)
        check_prefix(None if head is None else head.schema, folder, self._options.prefix)

    # ---- what earlier runs left

    def _serve(self, folder: str, owner: Owner) -> bool:
        """See Search: other handlers may have logs here, too."""
        ref = self._world.places.ref(owner.database, owner.table)
        if ref.log_folder != folder or not fits(owner, self._owner(owner.database, owner.table)):
            return True
        known = _owners.of(folder)
        if known is None:
            if self._is_gone(ref):
                return True
            if owner.prefix is None:
                self._check_prefix(folder)  # before it is claimed: another handler may be able to read it
        elif known not in self._logs:
            return False
        with self._used(owner.database, owner.table) as sink:
            if _owners.claim_free(folder, sink):
                sink.load()
        return False

    def _is_gone(self, ref: TableRef) -> bool:
        """Whether there is no table any more, and nothing in the log that would make it."""
        if ref.path is None or self._world.files.exists(f"{ref.path}/_delta_log"):
            return False
        head = head_of(self._world.files, ref.log_folder)
        return head is not None and not head.segment.rows

    def _clear(self) -> None:
        """Let go of the tables that are gone: a source may make new ones all the time. The logs stay."""
        for sink in self._known():
            log = self._logs[sink]
            ref = self._world.places.ref(sink.database, sink.table)
            last = log.after(log.last - 1)
            if not last or last[-1].rows or sink.waiting.rows or not self._is_gone(ref):
                continue
            with self._lock:
                if not self._in_use[sink] and log.last == last[-1].number:
                    _owners.release(sink.log_folder, sink)
                    del self._sinks[sink.database, sink.table], self._logs[sink], self._in_use[sink]
