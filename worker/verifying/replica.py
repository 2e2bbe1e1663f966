"""Read a replica's rows with Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DataType, StructType, TimestampType

from handlers.spark.delta.commits.exactly_once import STRICT
from handlers.spark.read.current import newest_frame
from handlers.spark.read.inspection import columns_of
from handlers.spark.read.inventory import Found
from handlers.spark.read.log_heads import head_of
from handlers.spark.read.view import NothingToSee
from handlers.spark.table_ref import quoted
from worker.verifying.source import Row
from worker.verifying.spark_lakes import Lake
from worker.verifying.written import has_place

_ROWS_OF_A_PART = 50_000
"""The driver loads one part of the sorted rows at a time."""


@dataclass(frozen=True)
class Replica:
    """One table of a lake. Not thread-safe."""

    lake: Lake
    found: Found
    _: KW_ONLY
    with_waiting: bool
    """Whether to include rows that are not merged yet."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """Return the replica's key; None: there is no log."""
        head = head_of(self.lake.files, self.found.ref.log_folder)
        return None if head is None else head.key

    def schema(self) -> StructType | None:
        """Return its columns; None while no row is visible."""
        with self.session() as session:
            frame = self._frame(session)
            return None if frame is None else frame.schema

    def rows(self, columns: Sequence[str], order: Sequence[str]) -> Iterator[Row]:
        """Yield all rows in the order of these columns. Texts are sorted by their UTF-8 bytes."""
        with self.session() as session:
            frame = self._frame(session)
            if frame is None:
                return
            if order:
                count = frame.count()
                session.conf.set("spark.sql.shuffle.partitions", str(2 + count // _ROWS_OF_A_PART))
                frame = frame.orderBy(*map(quoted, order))
            yield from map(tuple, _selected(frame, columns).toLocalIterator(prefetchPartitions=True))

    def rows_of(self, columns: Sequence[str], keys: Sequence[Row], by: Sequence[str]) -> Iterator[Row]:
        with self.session() as session:
            frame = self._frame(session)
            if frame is None:
                return
            types = {field.name.lower(): field.dataType for field in frame.schema.fields}
            wanted = StructType()
            for number, name in enumerate(by):
                wanted.add(f"k{number}", types[name.lower()])
            kept = [field.dataType for field in wanted.fields]
            values = [tuple(map(for_spark, key, kept)) for key in keys if all(map(has_place, key, kept))]
            frame.createOrReplaceTempView("binlane_rows")
            session.createDataFrame(values, wanted).createOrReplaceTempView("binlane_keys")
            same = " AND ".join(f"r.{quoted(name)} = k.k{number}" for number, name in enumerate(by))
            found = session.sql(
                f"SELECT r.* FROM binlane_rows AS r LEFT SEMI JOIN binlane_keys AS k ON {same}"
            )
            yield from map(tuple, _selected(found, columns).collect())

    def _frame(self, session: SparkSession) -> DataFrame | None:
        ref = self.found.ref
        if self.with_waiting:
            try:
                return newest_frame(session, self.lake.files, ref, self.lake.entry.options.prefix)
            except NothingToSee:
                pass  # only merged rows are visible
        if columns_of(session, ref) is None:
            return None
        return session.sql(f"SELECT * FROM {ref.sql}")

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Provide a separate session, in UTC."""
        session = self.lake.spark.fresh()
        try:
            session.conf.set("spark.sql.session.timeZone", "UTC")
            session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
            for name, value in STRICT.items():
                session.conf.set(name, value)
            yield session
        finally:
            self.lake.spark.drop(session)


def _selected(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select times without a zone, in the session's UTC. Otherwise pyspark would return local times."""
    types: Mapping[str, DataType] = {field.name.lower(): field.dataType for field in frame.schema.fields}
    return frame.selectExpr(
        *(
            f"CAST({quoted(name)} AS TIMESTAMP_NTZ) AS {quoted(name)}"
            if isinstance(types[name.lower()], TimestampType)
            else quoted(name)
            for name in columns
        )
    )


def for_spark(value: Any, type_: DataType) -> Any:
    """Convert a value from the common form for a key's column."""
    if isinstance(type_, TimestampType) and isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return bool(value) if isinstance(type_, BooleanType) else value
