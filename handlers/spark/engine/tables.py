"""The tables of one handler: a sink for each source table, and which sink serves which log."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from handlers.api import HandlerContext
from handlers.logs import get_logger
from handlers.mysql.ddl import TableName
from handlers.progress import KnownIds, PassingOver
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.engine.table.work import TableWork
from handlers.spark.engine.table.world import World
from handlers.spark.iceberg.catalog import IcebergCatalog
from handlers.spark.locations import Locations
from handlers.spark.log.beside import Owner, check_prefix, fits, logs_below, sign
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.store_choice import commits_are_safe, files_for, files_without_java
from handlers.spark.log.streams import Packs
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.read.log_heads import head_of
from handlers.spark.rows.column_types import override
from handlers.spark.runtime.conf import has_table_defaults
from handlers.spark.runtime.session import SharedSpark

_serving: dict[str, TableSink] = {}
"""Log folder -> the sink of this process that serves it.

Several entries of a configuration may keep tables in one place, say rules for shop.orders and for shop.*.
Each finds all logs that an earlier run left. If two sinks merged the same log, most of the work would be
wasted. And if one of them dropped the table, the other would merge its waiting segments into the next table
of that name."""
_claiming = threading.Lock()  # guards changes of the dict
_whose: WeakKeyDictionary[TableSink, Owner] = WeakKeyDictionary()


def _release(sink: TableSink) -> None:
    with _claiming:
        if _serving.get(sink.log_folder) is sink:
            del _serving[sink.log_folder]


class Tables:
    """Any thread may call any method."""

    def __init__(
        self,
        options: SparkOptions,
        context: HandlerContext,
        section: SparkSection,
        spark: SharedSpark,
        *,
        offer: Callable[[TableSink], None],
        look_at: Callable[[str], None],
        look_after: Callable[[TableSink], None],
    ) -> None:
        """`section`: the handler's own. The Spark of this process may have begun with another.

        `offer` gets a table in which something waits. `look_at` gets the folder of a log to check from now
        on: this handler serves it, or nobody does any more. `look_after` gets a table that was loaded, or
        into which something was merged."""
        locations = Locations(options, section, context.folder)
        is_iceberg, root, local = options.format == "iceberg", locations.root, spark.assumes_local_files
        files = files_without_java(root) if is_iceberg else files_for(root, spark, assume_local=local)
        self.world = World(
            options=options,
            context=context,
            spark=spark,
            locations=locations,
            files=files,
            # A command writes no packs, because it hands over no batch twice.
            packs=Packs(
                files,
                locations.logs,
                every=options.shared_segments if context.partitions is not None else 0.0,
                partitions=self.partitions,
            ),
            without_spark=WithoutSpark(
                options,
                files,
                makes_tables=not has_table_defaults(spark.section),
                is_safe=commits_are_safe(root, spark, assume_local=local),
            ),
            iceberg=IcebergCatalog(section, context.folder) if is_iceberg else None,
            overrides={name.lower(): override(text) for name, text in options.columns.items()},
            settle=self._settle,
            leaving=self._leaving,
            databases_of=self._databases_of,
            own=threading.local(),
            passing_over=PassingOver(context, get_logger("spark")),
            known_ids=KnownIds(options.topic_again),
        )
        self._offer = offer
        self._look_at = look_at
        self._look_after = look_after
        self._lock = threading.Lock()  # guards the three below
        self._sinks: dict[tuple[str, str], TableSink] = {}
        self._logs: dict[TableSink, SegmentLog] = {}
        self._in_use: Counter[TableSink] = Counter()

    def known(self) -> list[TableSink]:
        """The tables that this handler serves."""
        with self._lock:
            sinks = list(self._sinks.values())
        return [sink for sink in sinks if self.serves(sink)]

    def serves(self, sink: TableSink) -> bool:
        return _serving.get(sink.log_folder) is sink

    def partitions(self) -> frozenset[tuple[str, int]]:
        """This worker's partitions at present."""
        current = self.world.context.partitions
        return frozenset(() if current is None else current())

    @contextmanager
    def used(self, database: str, table: str) -> Iterator[TableSink]:
        """A table's sink, which is not let go of inside the block."""
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
        kind = TableWork
        if self.world.iceberg is not None:
            from handlers.spark.engine.table import iceberg_work  # noqa: PLC0415 (PyIceberg is an extra)

            kind = iceberg_work.IcebergWork
        work = kind(database, table, self.world)
        log = SegmentLog(self.world.files, work.ref.log_folder, is_table=not self.world.merges)
        sink = TableSink(
            database,
            table,
            work,
            log,
            sign=self._sign,
            offer=self._offer,
            look_after=self._has_changed,
            forget=self._forget,
        )
        self._logs[sink] = log
        _whose[sink] = self.owner_of(database, table)
        return sink

    # ---- who serves a log

    def claim(self, sink: TableSink) -> None:
        """Let the sink serve its log, instead of another sink of this process that fits."""
        other = _serving.get(sink.log_folder)
        if other is not None and not fits(_whose[other], _whose[sink]):
            return  # the log rejects it, and the other sink continues
        self._look_at(sink.log_folder)
        with _claiming:
            before, _serving[sink.log_folder] = _serving.get(sink.log_folder, sink), sink
        if before is not sink:
            sink.take_over(before)

    def claim_free(self, sink: TableSink) -> bool:
        """Whether the sink serves its log now. It does if no other sink of this process does."""
        with _claiming:
            return _serving.setdefault(sink.log_folder, sink) is sink

    def serving(self, log_folder: str) -> TableSink | None:
        """The sink of this process that serves the log."""
        return _serving.get(log_folder)

    def has(self, sink: TableSink) -> bool:
        """Whether it is this handler's."""
        return sink in self._logs

    def owner_of(self, database: str, table: str) -> Owner:
        """This handler's owner entry for the table's log."""
        options = self.world.options
        return Owner(database, table, options.mode, options.prefix, options.catalog_table or "")

    def check_prefix(self, folder: str) -> None:
        """Raise Rejected for a log whose columns have another prefix."""
        head = head_of(self.world.files, folder)
        check_prefix(None if head is None else head.segment.schema, folder, self.world.options.prefix)

    def _sign(self, sink: TableSink) -> None:
        """Record the log's owner, and check that this handler can read it."""
        files, folder = self.world.files, sink.log_folder
        signed, *others = self.world.locations.signed_folders(sink.database, sink.table)
        for other in others:
            # Only the table's own log records how it is kept: both may be removed, and recreated otherwise.
            sign(files, other, Owner(sink.database, sink.table, "table"))
        found = sign(files, signed, _whose[sink])
        if found is None or found.prefix is None:
            self.check_prefix(folder)

    def _has_changed(self, sink: TableSink) -> None:
        """Called after a load or a merge, which may have shown that others write the table's log."""
        self._look_at(sink.log_folder)
        self._look_after(sink)

    # ---- letting go

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Partitions were revoked: let go of tables that no longer get any records here. A table is served
        again when it gets a batch or its partition. Returns when no commit of these tables runs."""
        left, current = set(partitions), set(self.partitions())
        gone = [
            sink
            for sink in self.known()
            if not left.isdisjoint(sink.partitions) and current.isdisjoint(sink.partitions)
        ]
        for sink in gone:
            self.let_go(sink)
        for sink in gone:
            sink.merges.ended()

    def let_go(self, sink: TableSink) -> None:
        """Let another worker serve its log from now on."""
        _release(sink)
        self._look_at(sink.log_folder)
        sink.let_go()

    def close(self) -> None:
        """Leave the logs to the next worker."""
        for sink in self.known():
            _release(sink)

    def remove_gone(self, sink: TableSink, is_gone: Callable[[], bool]) -> None:
        """Forget a table that is gone, with all that is known about it, unless it is in use. `is_gone` is
        asked about a table whose log ends in a segment without rows. It may read the store."""
        log = self._logs.get(sink)
        if log is None or not self.serves(sink):
            return
        last = log.after(log.last - 1)
        if not last or last[-1].rows or sink.waiting.rows or not is_gone():
            return
        with self._lock:
            if not self._in_use[sink] and log.last == last[-1].number:
                _release(sink)
                del self._sinks[sink.database, sink.table], self._logs[sink], self._in_use[sink]

    # ---- DDL about another table than the batch's own

    def _databases_of(self, table: str) -> list[str]:
        """Databases that may have such a table, also for another handler or left by an earlier run."""
        locations, mode = self.world.locations, self.world.options.mode
        found = []
        for folder, owner in logs_below(self.world.files, locations.logs):
            own = (owner.table, owner.mode) == (table, mode)
            if own and locations.ref(owner.database, table).log_folder == folder:
                found.append(owner.database)
        return found

    def _settle(self, name: TableName) -> None:
        sink = _serving.get(self.world.locations.ref(*name).log_folder)
        if sink is not None:
            sink.settle()
            return
        with self.used(*name) as own:
            self.claim(own)
            own.settle()

    def _leaving(self, name: TableName) -> None:
        with self.used(*name) as own:
            (_serving.get(own.log_folder) or own).merges.leaves()

    def _forget(self, database: str, table: str) -> None:
        sink = _serving.get(self.world.locations.ref(database, table).log_folder)
        if sink is not None:
            sink.forget()
