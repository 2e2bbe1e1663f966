"""Views in Spark's catalog: any SQL client of that catalog reads tables with their waiting rows."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from handlers.spark.delta.log_files import metadata_in_files
from handlers.spark.delta.statements import listed, literal
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.engine.table.world import World
from handlers.spark.read.current import columns_of
from handlers.spark.read.log_heads import head_of, shown_shape
from handlers.spark.read.view import Columns, NothingToSee, view_sql
from handlers.spark.runtime.errors import says_no_table
from handlers.spark.table_ref import TableRef, quoted

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
