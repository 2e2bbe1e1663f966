"""The Spark tables of one handler: a sink for each source table, and the threads behind them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from handlers.api import Batch, HandlerContext
from handlers.mysql_ddl import TableName
from handlers.spark.column_types import override
from handlers.spark.delta import applier_for
from handlers.spark.keeper import Keeper
from handlers.spark.log.files import files_for
from handlers.spark.log.owner import Owner, logs_below, sign
from handlers.spark.log.segments import SegmentLog
from handlers.spark.merger import Merger
from handlers.spark.options import SparkOptions
from handlers.spark.owners import Owners
from handlers.spark.places import Places
from handlers.spark.section import SparkSection
from handlers.spark.session import acquire, release
from handlers.spark.sink import TableSink
from handlers.spark.table_work import TableWork, World

__all__ = ["Lake"]

_owners: Owners[TableSink] = Owners()


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
        self._lock = threading.Lock()  # guards the sinks
        self._sinks: dict[tuple[str, str], TableSink] = {}
        self._merger = Merger(options.merge, threads=section.concurrency)
        self._keeper = Keeper(options.upkeep, self._known, self._left)
        self._runs = False

    def start(self) -> None:
        """Begin to merge what waits, and to watch Spark."""
        self._runs = True
        if self._world.context.stop_worker is not None:
            self._spark.watch(self._world.context.stop_worker)
        if self._world.applier is not None:
            self._merger.start()
            self._keeper.start()

    def handle(self, batch: Batch) -> None:
        sink = self._sink(batch.database, batch.name)
        self._claim(sink)
        sink.take(batch)

    def close(self) -> None:
        try:
            if self._runs and self._world.applier is not None:
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

    def _sink(self, database: str, table: str) -> TableSink:
        with self._lock:
            sink = self._sinks.get((database, table))
            if sink is None:
                work = TableWork(database, table, self._world)
                is_table = self._world.applier is None
                log = SegmentLog(self._world.files, work.ref.log_folder, is_table=is_table)
                sink = TableSink(
                    database,
                    table,
                    work,
                    log,
                    sign=self._sign,
                    offer=self._merger.offer,
                    forget=self._forget,
                )
                self._sinks[database, table] = sink
        return sink

    def _claim(self, sink: TableSink) -> None:
        before = _owners.claim(sink.log_folder, sink)
        if before is not None:
            before.unload()

    def _databases_of(self, table: str) -> list[str]:
        with self._lock:
            return [database for database, name in self._sinks if name == table]

    def _settle(self, name: TableName) -> None:
        sink = _owners.of(self._world.places.ref(*name).log_folder)
        if sink is None:
            sink = self._sink(*name)
            self._claim(sink)
        sink.settle()

    def _forget(self, database: str, table: str) -> None:
        sink = _owners.of(self._world.places.ref(database, table).log_folder)
        if sink is not None:
            sink.forget()

    def _sign(self, sink: TableSink) -> None:
        """Write down whose log it is."""
        if self._world.applier is not None:
            log_folder = self._world.places.ref(sink.database, sink.table).log_folder
            sign(self._world.files, log_folder, Owner(sink.database, sink.table, self._options.mode))

    def _left(self) -> Iterator[TableSink]:
        """The tables with logs of earlier runs."""
        for folder, owner in logs_below(self._world.files, self._world.places.logs):
            ref = self._world.places.ref(owner.database, owner.table)
            # Other handlers may have logs here, too.
            if owner.mode == self._options.mode and ref.log_folder == folder:
                sink = self._sink(owner.database, owner.table)
                if _owners.claim_free(folder, sink):
                    yield sink
