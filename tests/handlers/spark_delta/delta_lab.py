"""Segments made by hand, and the Delta tables that they are brought into."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from delta_reading import column_types, read_delta

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.held_segments import held_by
from handlers.spark.delta.modes import merge_by_spark
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import Segment
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions, SparkOptions
from handlers.spark.rows.shape import Mode, Shape, log_schema
from handlers.spark.table_ref import TableRef, quoted

__all__ = ["Elsewhere", "MakeTable", "Table", "at", "shape"]

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: int) -> datetime:
    """A moment."""
    return _BEGAN + timedelta(seconds=second)


def shape(key: Sequence[str] = ("id",), /, **types: pa.DataType) -> Shape:
    return Shape(pa.schema(list(types.items())), tuple(key))


class Table:
    """One Delta table of a test, and its log."""

    def __init__(self, spark: Any, folder: Path, *, mode: Mode = "replica", **options: Any) -> None:
        self.spark = spark
        self.mode = mode
        self.options = SparkOptions(mode=mode, **{"merge": MergeOptions(engine="spark"), **options})
        self.path = str(folder)
        self.ref = TableRef(f"delta.{quoted(self.path)}", self.path, f"{folder}.log", "binlane:shop.t")
        self.log = SegmentLog(LocalFiles(), self.ref.log_folder)
        self.log.load()
        self.shape = Shape(pa.schema([]), ())

    def put(self, of: Shape, *rows: Mapping[str, Any], partial: bool = False) -> Segment:
        """A segment; what a row does not name is null, `op` and the like are columns that binlane adds."""
        self.shape = of
        schema = log_schema(of, mode=self.mode, prefix="_")
        own = set(of.schema.names)
        named: list[dict[str, Any]] = []
        for number, row in enumerate(rows):
            given = {"op": "upsert", "source_time": at(0), "row": number, **row}
            named.append({name if name in own else f"_{name}": value for name, value in given.items()})
        table = pa.Table.from_pylist(named, schema=schema)
        return self.log.append(table, Marks(), key=of.key, partial=partial)

    def merge(self, *segments: Segment, spark: Any = None) -> None:
        """Bring in these, else all that the table has not got."""
        spark = spark or self.spark
        found = segments or self.log.after(self.merged)
        note = self.note(found[0].number, found[-1].number)
        what = Bringing(self.ref, found, self.shape, note)
        if WithoutSpark(self.options, LocalFiles()).apply(what):
            return
        merge_by_spark(spark, what, self.options)

    def note(self, first: int, last: int) -> CommitNote:
        return CommitNote("worker", "spark", first, last, 1_000 + last, {("cdc", 0): (last, 0)})

    @property
    def merged(self) -> int:
        return held_by(self.spark, self.ref).last

    @property
    def makers(self) -> str:
        """Of each commit, from the first: s for Spark, d for what was made without it."""
        found = self.sql("DESCRIBE HISTORY {t}").select("version", "engineInfo").collect()
        return "".join(
            "s" if str(row.engineInfo).startswith("Apache-Spark") else "d" for row in sorted(found)
        )

    @property
    def commits(self) -> int:
        """How many followed the first."""
        return len(list(Path(self.path, "_delta_log").glob("?" * 20 + ".json"))) - 1

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        """What is in the table, in order."""
        found = read_delta(Path(self.path), columns, spark=lambda: self.spark)
        return sorted((tuple(row.values()) for row in found), key=repr)

    def types(self) -> dict[str, str]:
        return column_types(Path(self.path))

    def sql(self, statement: str) -> Any:
        """`{t}` stands for the table."""
        return self.spark.sql(statement.replace("{t}", self.ref.sql))


MakeTable = Callable[..., Table]


class Elsewhere:
    """The same files as in a store whose folders are only parts of names."""

    def __init__(self, files: LocalFiles) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)
