"""The Spark tables of one handler between `open` and `close`, and their threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException

from handlers.api import Batch, HandlerContext, StopWorker, TargetUnavailable
from handlers.logs import get_logger
from handlers.spark.engine.keeper import Keeper, Views
from handlers.spark.engine.leftovers import FoundLogs, Search
from handlers.spark.engine.merge_scheduler import Merger
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.engine.tables import Tables
from handlers.spark.log.store_choice import UnsafeForSeveral, check_several_writers, default_scheme
from handlers.spark.log.stores.interface import FilesError, scheme_of
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.runtime.session import acquire, release

_UPKEEP_SECONDS = 5.0  # merges have WORK_SECONDS

_log = get_logger("spark")


class Lake:
    """Exists between `open` and `close`. Any thread may hand over batches."""

    def __init__(self, options: SparkOptions, context: HandlerContext) -> None:
        """Start Spark if all tables need it. Raises like SparkHandler.open."""
        section = SparkSection.model_validate(dict(context.spark))
        self._is_iceberg = options.format == "iceberg"
        stopping = context.stopping or (bool if self._is_iceberg else None)  # then nothing waits for Spark
        self._spark = acquire(
            section, context.folder, context.worker, within=context.start_timeout, stopping=stopping
        )
        self._assumed = self._spark.assumes_local_files and not self._is_iceberg
        self._merger = Merger(options.merge, threads=section.concurrency)
        try:
            self._tables = Tables(
                options,
                context,
                section,
                self._spark,
                offer=self._merger.offer,
                look_at=lambda log_folder: self._search.add(log_folder),  # noqa: PLW0108 (it is made below)
                look_after=lambda sink: self._keeper.look_after(sink),  # noqa: PLW0108 (so is this)
            )
        except BaseException:
            release()
            raise
        self.world = self._tables.world
        """The objects that its tables share."""
        needs_spark = section.views or not self.world.without_spark.is_on
        self._needs_spark = self.world.merges and needs_spark and not self._is_iceberg
        if self._needs_spark:
            self._spark.start.begin()
        views = (Views(self.world).keep,) if section.views and not self._is_iceberg else ()
        self._keeper = Keeper(options.upkeep, self._tables.serves, *views)
        found = FoundLogs(self._tables)
        files, logs, partitions = self.world.files, self.world.locations.logs, self._tables.partitions
        self._search = Search(files, logs, serve=found.serve, partitions=partitions)
        self._runs = False
        self._is_safe = False
        self._merging = threading.Lock()  # guards the two below: whether merging has started, or may
        self._is_merging = False
        self._closed = False
        self._spark_told = threading.Event()
        """Set when Spark has started and merging has begun, or when Spark will never start."""

    def start(self) -> None:
        """Start merging: if all tables need Spark, as soon as it has started. It is watched from then on.

        Raises RuntimeError for an Iceberg catalog that is not well configured. Raises FilesError for a store
        that overwrites files, or in which several workers are not safe."""
        try:
            if self.world.iceberg is not None:
                self.world.iceberg.connected()
            self._check_writers()
            self.world.files.prove(self.world.locations.logs)
        except TargetUnavailable:
            pass  # the Connect server, or the catalog, is away: it is asked again before the first batch
        except FilesError as error:
            if not error.is_outage:
                raise
            # The store is away. It is proven before the first put, and batches wait for that.
        self._runs = True
        if self.world.packs.writer is not None and self.world.merges:
            self.world.packs.writer.start()
        if self.world.merges and self.world.context.partitions is not None:
            self._search.thread.start()
        if not self._needs_spark:
            self._begin_merging()
        self._spark.start.tell(self._go_on)

    def _go_on(self, error: BaseException | None) -> None:
        """Called when Spark has started, or has failed to."""
        stop_worker = self.world.context.stop_worker
        try:
            if error is None:
                self._check_default_files()
                self._begin_merging()
                if stop_worker is not None:
                    self._spark.watch(stop_worker)
        except Exception as trouble:
            error = trouble
        self._spark_told.set()
        if error is not None and stop_worker is not None and not self._closed:
            told = f"{type(error).__name__}: {error}"
            stop_worker(StopWorker(f"handler {self.world.context.handler} needs Spark: {told}"))

    def _begin_merging(self) -> None:
        with self._merging:
            if self.world.merges and not self._closed and not self._is_merging:
                self._is_merging = True
                self._merger.start()
                self._keeper.thread.start()

    def _check_default_files(self) -> None:
        """Check that paths taken as local are local for Spark, too. Raises RuntimeError."""
        root = self.world.locations.root
        if not self._assumed or scheme_of(root) or (found := default_scheme(self._spark)) == "file":
            return
        raise RuntimeError(
            f"{root} was read as a folder of this machine, but Spark's fs.defaultFS is {found}: the segments "
            f"received so far are below {self.world.locations.logs} here. Give spark.warehouse its full "
            f"address, {found}://..., or file:{root}; or set HADOOP_CONF_DIR"
        )

    def handle(self, batch: Batch) -> None:
        try:
            self._check_writers()
        except UnsafeForSeveral as error:
            raise StopWorker(str(error)) from error
        with self.table(batch.database, batch.name) as sink:
            sink.take(batch)

    @contextmanager
    def table(self, database: str, name: str) -> Iterator[TableSink]:
        """The sink that serves the log of this source table in this process."""
        with self._tables.used(database, name) as sink:
            self._tables.claim(sink)
            yield sink

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Release revoked partitions. Returns when no commit runs for tables of these alone."""
        self._tables.release(partitions)

    def close(self) -> None:
        """Merge waiting segments within `merge.at_close`. Work that takes much longer is abandoned: it ends
        with Spark, and is repeated at the next start, as after a crash."""
        done = True
        try:
            spent = self._await_spark()
            with self._merging:
                self._closed = True
            if self._runs and self.world.merges:
                writer = self.world.packs.writer
                others = (self._search.thread, self._keeper.thread, *(() if writer is None else (writer,)))
                end = time.monotonic() + _UPKEEP_SECONDS
                for each in others:
                    each.end()
                done = self._merger.close(spent)
                done &= all(each.ended(max(0.0, end - time.monotonic())) for each in others)
                if not done:
                    _log.warning("spark_work_left", hint="it takes too long; the next start repeats it")
        finally:
            if done:
                self._tables.close()
            release()

    def _await_spark(self) -> float:
        """Wait for Spark to start, if nothing merges before it and rows wait. Returns the seconds spent."""
        began = time.monotonic()
        if self._runs and self._needs_spark and any(sink.waiting.rows for sink in self._tables.known()):
            self._spark_told.wait(self.world.options.merge.at_close)
        return time.monotonic() - began

    def check(self) -> None:
        """Query Spark or the catalog, and the store, in which no worker must overwrite another's file."""
        if self.world.iceberg is not None:
            self.world.iceberg.connected().list_namespaces()
        else:
            self._spark.session.sql("SELECT 1").collect()
        self.world.files.list(self.world.locations.logs)
        self.world.files.prove(self.world.locations.logs)
        self._check_writers()

    def status(self) -> Mapping[str, Any]:
        now = time.time()
        tables = []
        for sink in self._tables.known():
            waiting = sink.waiting
            tables.append(
                {
                    "table": sink.name,
                    "waiting_rows": waiting.rows,
                    "waiting_bytes": waiting.bytes,
                    "waiting_seconds": 0.0 if waiting.since is None else max(0.0, now - waiting.since),
                    "views_wait": sink.views_wait,
                    "merged_source_time_ms": sink.merges.unmerged.merged_source_ms,
                    "error": sink.fault,
                }
            )
        return {"spark": self._spark.status(), "tables": tables}

    def _check_writers(self) -> None:
        """Check whether several workers are safe here. Repeated until Spark has answered."""
        if self._is_safe or not self.world.merges or self._is_iceberg:
            return  # plain files have no commits, and Iceberg's catalog compares before it sets
        assumed = self._spark.assumes_local_files
        try:
            check_several_writers(self.world.locations.root, self._spark, assume_local=assumed)
        except PySparkException as error:
            self._spark.stop_worker_if_gone(error)
            raise
        self._is_safe = True
