"""Removes merged segments, keeps files few and large, and keeps views."""

from __future__ import annotations

import heapq
import itertools
import random
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from handlers.hanging_calls import Background
from handlers.logs import get_logger
from handlers.spark.delta.log_files import metadata_in_files
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.engine.table.world import World
from handlers.spark.options import UpkeepOptions
from handlers.spark.read.current import columns_of
from handlers.spark.read.log_heads import head_of, shown_shape
from handlers.spark.read.view import Columns, NothingToSee, view_sql
from handlers.spark.runtime.errors import says_no_table
from handlers.spark.table_ref import TableRef, listed, literal, quoted

_TURN = 5.0
"""Seconds between two checks."""

_WHAT = ("optimize", "vacuum")

_FIRST = 3600.0
"""The longest delay of a table's first upkeep, in seconds. More frequent upkeep shortens it."""
_UNCHANGED = 24 * 3600.0
"""The same for a table into which this worker has merged nothing: each check costs requests to the store."""

_MERGED_BY_THEN = 3600.0
"""Seconds after a put by which its rows are assumed to be merged. Tables with waiting rows are checked."""

_log = get_logger("spark")


class Keeper:
    """One thread, `spark-keeper`, from `start` to `end`.

    A table costs time only if something was merged, or its upkeep is due. Thousands of other tables are not
    visited."""

    def __init__(
        self,
        options: UpkeepOptions,
        serves: Callable[[TableSink], bool],
        show: Callable[[TableSink], bool] = lambda _: True,
    ) -> None:
        """`serves`: whether this handler still serves a table. `show`: see `Views.keep`."""
        self.thread = Background("spark-keeper", self._run)
        self._options = options
        self._serves = serves
        self._show = show
        self._to_show: set[TableSink] = set()
        self._told: deque[TableSink] = deque()  # filled by any thread
        self._tidying: set[TableSink] = set()
        self._due: dict[tuple[TableSink, str], float] = {}  # seconds since 1970
        # When each table is checked next, seconds since 1970, in order.
        self._known: dict[TableSink, float] = {}  # an entry of `_order` with another time is outdated
        self._unchanged: set[TableSink] = set()  # those of them into which this worker merged nothing
        self._order: list[tuple[float, int, TableSink]] = []
        self._count = itertools.count()  # of tables due at the same time, the first planned is first

    def look_after(self, sink: TableSink) -> None:
        """Add a table that is served from now on, or into which something was merged. Any thread."""
        self._told.append(sink)

    def _run(self) -> None:
        while not self.thread.stopped.wait(_TURN):
            self.turn(time.time())

    def turn(self, now: float) -> None:
        """Do all due work. `now`: seconds since 1970."""
        while self._told:
            sink = self._told.popleft()
            self._tidying.add(sink)
            self._to_show.add(sink)
            is_unchanged = sink.merges.unmerged.merged_source_ms is None
            if sink not in self._known or (sink in self._unchanged and not is_unchanged):
                (self._unchanged.add if is_unchanged else self._unchanged.discard)(sink)
                every = self._options.optimize_every, self._options.vacuum_every
                # The times of thousands of tables are not all read at once.
                within = min([_FIRST, *filter(None, every)])
                self._plan(
                    sink, now + random.random() * (max(within, _UNCHANGED) if is_unchanged else within)
                )
        for sink in list(self._tidying):
            self._try(sink, "tidy", partial(sink.merges.tidy, time.monotonic()))
            if not sink.merges.has_to_tidy:
                self._tidying.discard(sink)
        for sink in list(self._to_show):
            self._try(sink, "view", partial(self._show_now, sink))
        while self._order and self._order[0][0] <= now and not self.thread.stopped.is_set():
            due, _, sink = heapq.heappop(self._order)
            if self._known.get(sink) != due:
                continue
            self._unchanged.discard(sink)
            if self._serves(sink):
                self._look_after(sink, now)
                self._plan(sink, min(self._due.get((sink, what), now + _FIRST) for what in _WHAT))
            else:
                self._known.pop(sink, None)
                for what in _WHAT:
                    self._due.pop((sink, what), None)

    def _show_now(self, sink: TableSink) -> None:
        self._to_show.discard(sink)
        if self._serves(sink) and not self._show(sink):
            self._to_show.add(sink)

    def _plan(self, sink: TableSink, due: float) -> None:
        self._known[sink] = due
        heapq.heappush(self._order, (due, next(self._count), sink))

    def _look_after(self, sink: TableSink, now: float) -> None:
        """`now`: seconds since 1970."""
        options = self._options
        if self._is_due(sink, "optimize", options.optimize_every, now):
            self._try(sink, "optimize", lambda: sink.merges.optimize(options.min_files))
        # Files that a commit replaces may be removed `retention` later.
        if self._is_due(sink, "vacuum", options.vacuum_every, now, after=options.retention):
            self._try(sink, "vacuum", lambda: sink.merges.vacuum(options.retention))

    def _is_due(self, sink: TableSink, what: str, every: float, now: float, after: float = 0.0) -> bool:
        """Whether it must be done now. If so, it counts as done, even if it fails: a worker that restarts
        repeatedly must not do only this. `after`: seconds after a commit when work appears."""
        due = self._due.get((sink, what))
        if not every or (due is not None and now < due):
            return False
        if due is not None and _is_idle(sink, since=due - every - after):
            self._due[sink, what] = now + every
            return False
        last = None
        with suppress(Exception):  # an unreadable time counts as unknown, so the interval starts now
            last = sink.upkeep_times.last(what)  # perhaps by another worker
        if last is not None and _is_idle(sink, since=last - after):
            self._due[sink, what] = now + every
            return False
        if last is not None:
            due = min(last, now) + every
        is_due = due is not None and due <= now
        self._due[sink, what] = now + every if is_due or due is None else due
        if is_due or last is None:
            self._try(sink, "remember", lambda: sink.upkeep_times.remember(what, now))
        return is_due

    def _try(self, sink: TableSink, what: str, do: Callable[[], None]) -> None:
        """Upkeep can wait: log an error, and try again at the next time."""
        try:
            do()
        except Exception as error:
            _log.warning("spark_upkeep_failed", table=sink.name, what=what, error=str(error))


def _is_idle(sink: TableSink, *, since: float) -> bool:
    """Whether the table is unchanged since then (seconds since 1970): upkeep would find no work."""
    return not sink.waiting.rows and 0.0 < sink.last_put + _MERGED_BY_THEN < since


_LOG = "binlane.log"
"""The view's property that contains the folder of its table's log."""
_OTHERS = re.compile(r"[^0-9A-Za-z_]")
"""Characters that Spark's catalog rejects in names."""


class TakenName(RuntimeError):
    """The catalog already has another table or view of this name."""


@dataclass(slots=True)
class Views:
    """Keeps the views of one handler's tables. One thread."""

    world: World
    _kept: dict[str, str] = field(default_factory=dict)
    """Log folder -> the view's query."""
    _session: SparkSession | None = None
    """The session that created them."""

    def keep(self, sink: TableSink) -> bool:
        """Create a table's view, or replace it if its columns have changed. Drop it with the table.

        Returns False if the table changes at this moment: call again. Raises TakenName, BrokenLog, and what
        Spark and the store raise."""
        if sink.views_wait:
            return False  # a statement is being followed
        ref = self.world.locations.ref(sink.database, sink.table)
        with self.world.session() as session:
            columns = self._columns(session, ref)
            sql = "" if columns is None else self._query(ref, columns)
            if session is not self._session:  # a restarted server may have lost a catalog in memory
                self._session, self._kept = session, {}
            if sql != self._kept.get(ref.log_folder):
                self._kept[ref.log_folder] = sql
                try:
                    self._replace(session, sink, ref, sql)
                except TakenName:
                    raise
                except Exception:
                    del self._kept[ref.log_folder]
                    raise
        return True

    def _columns(self, session: SparkSession, ref: TableRef) -> Columns | None:
        if ref.path is not None and (found := metadata_in_files(self.world.files, ref.path)) is not None:
            return found.columns
        return columns_of(session, ref)

    def _query(self, ref: TableRef, columns: Columns) -> str:
        """Return the view's query. It has only columns of the table: others would stay null after the merge
        that adds them."""
        files, prefix, rows = self.world.files, self.world.options.prefix, ref.sql
        head = head_of(files, ref.log_folder)
        if head is not None:
            with suppress(NothingToSee):  # until the next row is merged, or for tables shown as merged
                mode, shape = shown_shape(files, ref, head, prefix, is_kept=True)
                rows = f"(\n{view_sql(ref, shape, mode=mode, prefix=prefix, columns=columns)}\n)"
        return f"SELECT {listed(columns)} FROM {rows}"

    def _replace(self, session: SparkSession, sink: TableSink, ref: TableRef, sql: str) -> None:
        mode = self.world.options.mode
        table = sink.table if mode == "replica" else f"{sink.table}_{mode}"
        database, view = (quoted(_OTHERS.sub("_", each)) for each in (sink.database, table))
        owner = _log_of(session, f"{database}.{view}")
        if owner not in (None, ref.log_folder):
            whose = f", the view of {owner}" if owner else ""
            raise TakenName(
                f"no view is kept for {sink.name}: the catalog has another {database}.{view}{whose}"
            )
        if not sql:
            if owner is not None:
                session.sql(f"DROP VIEW {database}.{view}")
            return
        session.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
        properties = f"TBLPROPERTIES ({literal(_LOG)} = {literal(ref.log_folder)})"
        session.sql(f"CREATE OR REPLACE VIEW {database}.{view} {properties} AS\n{sql}")


def _log_of(session: SparkSession, name: str) -> str | None:
    """Return the log that a view shows, empty for another table or view. None if none has this name."""
    try:
        found = session.sql(f"SHOW TBLPROPERTIES {name}").collect()
    except AnalysisException as error:
        if says_no_table(error):
            return None
        raise
    return {str(key): str(value) for key, value in found}.get(_LOG, "")
