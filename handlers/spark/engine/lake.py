"""The Spark tables of one handler: a sink for each source table, and the threads behind them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException

from handlers.api import Batch, HandlerContext, StopWorker, TargetUnavailable
from handlers.logs import get_logger
from handlers.mysql.ddl import TableName
from handlers.progress.passing_over import PassingOver
from handlers.progress.topic_ids import KnownIds
from handlers.spark.delta import applier_for
from handlers.spark.engine.keeper import Keeper
from handlers.spark.engine.leftovers import Search
from handlers.spark.engine.merger import Merger
from handlers.spark.engine.owners import Owners
from handlers.spark.engine.sink import TableSink
from handlers.spark.engine.table_work import TableWork, World
from handlers.spark.locations import Locations
from handlers.spark.log.owner import Owner, check_prefix, fits, logs_below, sign
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.store_choice import files_for
from handlers.spark.log.stores.interface import FilesError
from handlers.spark.options import SparkOptions
from handlers.spark.read.looking import head_of
from handlers.spark.rows.column_types import override
from handlers.spark.runtime.session import acquire, release
from handlers.spark.section import SparkSection
from handlers.spark.several_writers import UnsafeForSeveral, check_several_writers
from handlers.spark.table_ref import TableRef

__all__ = ["Lake"]

_UPKEEP_SECONDS = 5.0  # while merges have WORK_SECONDS

_ABANDONED = 600.0
"""Seconds after its newest segment that a log of no partition of this worker counts as nobody's."""

_log = get_logger("spark")

_owners: Owners[TableSink] = Owners()
_whose: WeakKeyDictionary[TableSink, Owner] = WeakKeyDictionary()


class Lake:
    """Between `open` and `close`; any thread may hand over batches."""

    def __init__(self, options: SparkOptions, context: HandlerContext) -> None:
        """Starts Spark, unless another handler has. Raises as SparkHandler.open."""
        section = SparkSection.model_validate(dict(context.spark))
        self._options = options
        self._spark = acquire(section, context.folder, context.worker, within=context.start_timeout)
        try:
            locations = Locations(options, section, context.folder)
            self._world = World(
                options=options,
                context=context,
                spark=self._spark,
                locations=locations,
                files=files_for(locations.root, self._spark),
                applier=applier_for(options),
                overrides={name: override(text) for name, text in options.columns.items()},
                settle=self._settle,
                leaving=self._leaving,
                databases_of=self._databases_of,
                own=threading.local(),
                passing_over=PassingOver(context, get_logger("spark")),
                known_ids=KnownIds(options.topic_again),
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
        files, logs = self._world.files, self._world.locations.logs
        partitions = context.partitions or (lambda: ())
        self._search = Search(files, logs, serve=self._serve, clear=self._clear, partitions=partitions)
        self._foreign: dict[str, tuple[float, Collection[tuple[str, int]]]] = {}
        self._runs = False
        self._is_safe = False

    def start(self) -> None:
        """Begin to merge what waits, and to watch Spark.

        Raises FilesError for a store that overwrites, or in which several workers are not safe.
        """
        try:
            self._check_writers()
            self._world.files.prove(self._world.locations.logs)
        except TargetUnavailable:
            pass  # a Connect server that is away: it is asked before the first batch
        except FilesError as error:
            if not error.is_outage:
                raise
            # The store is away: it is proven before the first put, and batches wait for that.
        self._runs = True
        if self._world.context.stop_worker is not None:
            self._spark.watch(self._world.context.stop_worker)
        if self._world.applier is not None:
            self._merger.start()
            self._keeper.start()
            if self._world.context.partitions is not None:
                self._search.start()

    def handle(self, batch: Batch) -> None:
        try:
            self._check_writers()
        except UnsafeForSeveral as error:
            raise StopWorker(str(error)) from error
        with self._used(batch.database, batch.name) as sink:
            self._claim(sink)
            sink.take(batch)

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Partitions have left: let go of the tables none of whose records come to this worker any more. Each
        is served again when a batch of it comes, or its partition. Returns when no commit of them runs."""
        left, current = set(partitions), set(self._partitions())
        gone = [
            sink
            for sink in self._known()
            if not left.isdisjoint(sink.partitions) and current.isdisjoint(sink.partitions)
        ]
        for sink in gone:
            self._let_go(sink)
        for sink in gone:
            sink.ended()

    def _let_go(self, sink: TableSink) -> None:
        _owners.release(sink.log_folder, sink)
        self._search.add(sink.log_folder)
        sink.let_go()

    def close(self) -> None:
        """Merge what waits as far as `merge.at_close` allows. What runs much longer is left: it ends with
        Spark, and is done again at the next start, as after a crash."""
        done = True
        try:
            if self._runs and self._world.applier is not None:
                others = (self._search, self._keeper)
                end = time.monotonic() + _UPKEEP_SECONDS
                for each in others:
                    each.end()
                done = self._merger.close()
                done &= all(each.ended(max(0.0, end - time.monotonic())) for each in others)
                if not done:
                    _log.warning("spark_work_left", hint="it takes long; it is done again at the next start")
        finally:
            for sink in self._known() if done else ():
                _owners.release(sink.log_folder, sink)
            release()

    def check(self) -> None:
        """Ask Spark, and the tables' file system, which must not let one worker overwrite another's file."""
        self._spark.session.sql("SELECT 1").collect()
        self._world.files.list(self._world.locations.logs)
        self._world.files.prove(self._world.locations.logs)
        self._check_writers()

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

    def _check_writers(self) -> None:
        """Whether several workers are safe here; asked until Spark has answered."""
        if self._is_safe or self._world.applier is None:  # plain files have no commits
            return
        try:
            check_several_writers(self._world.locations.root, self._spark)
        except PySparkException as error:
            self._spark.stop_worker_if_gone(error)
            raise
        self._is_safe = True

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
        self._search.add(sink.log_folder)
        before = _owners.claim(sink.log_folder, sink)
        if before is not None:
            sink.take_over(before)

    def _databases_of(self, table: str) -> list[str]:
        """Where there may be a table of that name: also another handler's, or what an earlier run left."""
        locations, mode = self._world.locations, self._options.mode
        found = []
        for folder, owner in logs_below(self._world.files, locations.logs):
            own = (owner.table, owner.mode) == (table, mode)
            if own and locations.ref(owner.database, table).log_folder == folder:
                found.append(owner.database)
        return found

    def _settle(self, name: TableName) -> None:
        sink = _owners.of(self._world.locations.ref(*name).log_folder)
        if sink is not None:
            sink.settle()
            return
        with self._used(*name) as own:
            self._claim(own)
            own.settle()

    def _leaving(self, name: TableName) -> None:
        with self._used(*name) as own:
            (_owners.of(own.log_folder) or own).leaves()

    def _forget(self, database: str, table: str) -> None:
        sink = _owners.of(self._world.locations.ref(database, table).log_folder)
        if sink is not None:
            sink.forget()

    def _sign(self, sink: TableSink) -> None:
        """Write down whose log it is, and see to it that this handler can read it."""
        files, folder = self._world.files, sink.log_folder
        locations = self._world.locations
        signed = locations.signed_folder(locations.ref(sink.database, sink.table))
        found = sign(files, signed, _whose[sink])
        self._search.add(folder)  # not before: a log without an owner's name is forgotten
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
        ref = self._world.locations.ref(owner.database, owner.table)
        if ref.log_folder != folder or not fits(owner, self._owner(owner.database, owner.table)):
            return True
        known = _owners.of(folder)
        if known is not None and known not in self._logs:
            return False
        if (known is None or known.is_behind()) and self._is_foreign(folder):
            if known is not None:
                self._let_go(known)  # it was idle, and its owner goes on
            return False
        if known is None:
            if self._is_gone(ref):
                return True
            if owner.prefix is None:
                self._check_prefix(folder)  # before it is claimed: another handler may be able to read it
        with self._used(owner.database, owner.table) as sink:
            if _owners.claim_free(folder, sink):
                sink.load()
        return False

    def _partitions(self) -> frozenset[tuple[str, int]]:
        current = self._world.context.partitions
        return frozenset(() if current is None else current())

    def _is_foreign(self, folder: str) -> bool:
        """Whether another worker has the partitions whose records a log holds; it merges that. Nobody does,
        where nothing was put for a while."""
        current, now = self._partitions(), time.time()
        until, then = self._foreign.get(folder, (0.0, ()))
        if now < until and then == current:
            return True
        self._foreign.pop(folder, None)
        head = head_of(self._world.files, folder)
        if head is None or not current.isdisjoint(head.marks.known):
            return False
        until = head.segment.written_ms / 1000 + _ABANDONED
        if now < until:
            self._foreign[folder] = min(until, now + _ABANDONED), current
        return now < until

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
            ref = self._world.locations.ref(sink.database, sink.table)
            last = log.after(log.last - 1)
            if not last or last[-1].rows or sink.waiting.rows or not self._is_gone(ref):
                continue
            with self._lock:
                if not self._in_use[sink] and log.last == last[-1].number:
                    _owners.release(sink.log_folder, sink)
                    del self._sinks[sink.database, sink.table], self._logs[sink], self._in_use[sink]
