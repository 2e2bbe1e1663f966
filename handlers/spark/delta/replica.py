"""Replicas of tables with a primary key: the last change of each key, by MERGE."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from handlers.spark.added import log_schema
from handlers.spark.delta.commits import CommitNote, fenced
from handlers.spark.delta.evolving import exists
from handlers.spark.delta.saving import save
from handlers.spark.delta.segments_frame import NUMBER, read
from handlers.spark.log.segment_file import Segment
from handlers.spark.options import SparkOptions
from handlers.spark.shape import Shape
from handlers.spark.table_ref import TableRef, quoted

__all__ = ["Replica"]


class Replica:
    """Brings folded segments into a table with a key."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options

    def apply(
        self,
        session: SparkSession,
        ref: TableRef,
        segments: Sequence[Segment],
        shape: Shape,
        note: CommitNote,
    ) -> None:
        """One commit. The table is made if there is none. Raises MergeConflict, and what Spark raises."""
        rows = self._last_of_each_key(session, segments, shape)
        with fenced(session, ref, note, first=segments[0].number):
            if exists(session, ref):
                self._merge(session, ref, rows, shape, partial=any(each.partial for each in segments))
            else:
                create(rows, ref, shape, self._options, self._op)

    @property
    def _op(self) -> str:
        return quoted(f"{self._options.prefix}op")

    def _last_of_each_key(
        self, session: SparkSession, segments: Sequence[Segment], shape: Shape
    ) -> DataFrame:
        """A segment has each key once, so the last segment of a key has its last change."""
        frame = read(session, segments, log_schema(shape, mode="replica", prefix=self._options.prefix))
        if len(segments) == 1:
            return frame.drop(NUMBER)
        frame.createOrReplaceTempView("binlane_segments")
        key = ", ".join(map(quoted, shape.key))
        columns = ", ".join(quoted(name) for name in frame.columns if name != NUMBER)
        return session.sql(
            f"SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {NUMBER} DESC) "
            f"AS binlane_rank FROM binlane_segments) WHERE binlane_rank = 1"
        )

    def _merge(
        self, session: SparkSession, ref: TableRef, rows: DataFrame, shape: Shape, *, partial: bool
    ) -> None:
        rows.createOrReplaceTempView("binlane_changes")
        names = shape.schema.names
        on = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in shape.key)
        absent = quoted(f"{self._options.prefix}absent")
        values = {name: f"s.{quoted(name)}" for name in names}
        if partial:
            values = {
                name: f"CASE WHEN array_contains(s.{absent}, {_text(name)}) THEN t.{quoted(name)} "
                f"ELSE s.{quoted(name)} END"
                for name in names
            }
        sets = ", ".join(f"t.{quoted(name)} = {value}" for name, value in values.items())
        columns = ", ".join(map(quoted, names))
        inserted = ", ".join(f"s.{quoted(name)}" for name in names)
        session.sql(
            f"MERGE INTO {ref.sql} AS t USING binlane_changes AS s ON {on} "
            f"WHEN MATCHED AND s.{self._op} = 'delete' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s.{self._op} <> 'delete' THEN INSERT ({columns}) VALUES ({inserted})"
        )


def create(rows: DataFrame, ref: TableRef, shape: Shape, options: SparkOptions, op: str) -> None:
    """Make a table of the rows that were not deleted; within `fenced`."""
    kept = rows.where(f"{op} <> 'delete'").select([quoted(name) for name in shape.schema.names])
    save(kept, ref, options)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
