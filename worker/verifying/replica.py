"""Read a replica's rows from its files, or with Spark if they need it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DataType, StructType, TimestampType

from handlers.spark.delta.commits.exactly_once import STRICT
from handlers.spark.delta.evolving import spark_schema
from handlers.spark.delta.log_actions import OnlySpark
from handlers.spark.read.current import columns_of, newest_frame
from handlers.spark.read.in_duckdb import Source, named, opened, values_of
from handlers.spark.read.log_heads import Found, head_of
from handlers.spark.read.view import NothingToSee
from handlers.spark.table_ref import quoted
from worker.verifying.source import Row
from worker.verifying.spark_lakes import Lake
from worker.verifying.written import has_place

_ROWS_OF_A_PART = 50_000
"""The driver loads one part of the sorted rows at a time."""
_AT_ONCE = 10_000
"""Rows that DuckDB returns at once."""


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
        return None if head is None else head.segment.key

    def schema(self) -> StructType | None:
        """Return its columns; None while no row is visible."""
        with self._shown() as shown:
            return None if shown is None else shown.schema

    def rows(self, columns: Sequence[str], order: Sequence[str]) -> Iterator[Row]:
        """Yield all rows in the order of these columns. Texts are sorted by their UTF-8 bytes."""
        with self._shown() as shown:
            if shown is not None:
                yield from shown.rows(columns, order)

    def rows_of(self, columns: Sequence[str], keys: Sequence[Row], by: Sequence[str]) -> Iterator[Row]:
        with self._shown() as shown:
            if shown is None:
                return
            places = {name.lower(): place for place, name in enumerate(shown.schema.names)}
            wanted = {name: places[name.lower()] for name in by}
            types = [shown.schema[place].dataType for place in wanted.values()]
            values = [tuple(map(for_spark, key, types)) for key in keys if all(map(has_place, key, types))]
            yield from shown.rows_of(columns, values, wanted)

    @contextmanager
    def _shown(self) -> Iterator[_InFiles | _InSpark | None]:
        """Read the files. Spark reads tables that only Spark reads."""
        with ExitStack() as stack:
            shown: _InFiles | _InSpark | None
            try:
                shown = self._in_files(stack)
            except OnlySpark:
                shown = self._in_spark(stack.enter_context(self.session()))
            yield shown

    def _in_files(self, stack: ExitStack) -> _InFiles | None:
        files, ref = self.lake.files, self.found.ref
        if not self.lake.has_readable_files:
            raise OnlySpark(str(ref), "is in a store of Spark")
        for with_waiting in (True, False) if self.with_waiting else (False,):
            with suppress(LookupError):  # only merged rows are visible, or none
                source = Source(files, ref, self.lake.entry.options.prefix, with_waiting)
                return _InFiles(stack.enter_context(opened(source)))
        return None

    def _in_spark(self, session: SparkSession) -> _InSpark | None:
        ref = self.found.ref
        if self.with_waiting:
            with suppress(NothingToSee):  # only merged rows are visible
                prefix = self.lake.entry.options.prefix
                return _InSpark(session, newest_frame(session, self.lake.files, ref, prefix))
        if columns_of(session, ref) is None:
            return None
        return _InSpark(session, session.sql(f"SELECT * FROM {ref.sql}"))

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


class _InFiles:
    """Read by DuckDB, which sorts large tables on disk."""

    def __init__(self, made: duckdb.DuckDBPyConnection) -> None:
        self._made = made
        self._columns = made.sql("FROM binlane.t LIMIT 0").to_arrow_table().schema
        self.schema = spark_schema(self._columns)

    def rows(self, columns: Sequence[str], order: Sequence[str]) -> Iterator[Row]:
        by = ", ".join(f"{named(name)} NULLS FIRST" for name in order)
        return self._selected(columns, f"FROM binlane.t {by and f'ORDER BY {by}'}")

    def rows_of(self, columns: Sequence[str], keys: Sequence[Row], by: Mapping[str, int]) -> Iterator[Row]:
        wanted = [self._columns.types[place] for place in by.values()]
        found = {f"k{place}": [key[place] for key in keys] for place in range(len(by))}
        arrays = map(pa.array, found.values(), wanted)
        self._made.register("keys", pa.table(list(arrays), names=list(found)))
        same = " AND ".join(f"r.{named(name)} = k.k{number}" for number, name in enumerate(by))
        return self._selected(columns, f"FROM binlane.t AS r SEMI JOIN keys AS k ON {same}")

    def _selected(self, columns: Sequence[str], rows: str) -> Iterator[Row]:
        names = ", ".join(map(named, columns))
        return values_of(self._made.sql(f"SELECT {names} {rows}").to_arrow_reader(_AT_ONCE))


class _InSpark:
    """Read by Spark."""

    def __init__(self, session: SparkSession, frame: DataFrame) -> None:
        self._session = session
        self._frame = frame
        self.schema = frame.schema

    def rows(self, columns: Sequence[str], order: Sequence[str]) -> Iterator[Row]:
        frame = self._frame
        if order:
            parts = 2 + frame.count() // _ROWS_OF_A_PART
            self._session.conf.set("spark.sql.shuffle.partitions", str(parts))
            frame = frame.orderBy(*map(quoted, order))
        return map(tuple, _selected(frame, columns).toLocalIterator(prefetchPartitions=True))

    def rows_of(self, columns: Sequence[str], keys: Sequence[Row], by: Mapping[str, int]) -> Iterator[Row]:
        wanted = StructType()
        for number, place in enumerate(by.values()):
            wanted.add(f"k{number}", self.schema[place].dataType)
        self._frame.createOrReplaceTempView("binlane_rows")
        self._session.createDataFrame(list(keys), wanted).createOrReplaceTempView("binlane_keys")
        same = " AND ".join(f"r.{quoted(name)} = k.k{number}" for number, name in enumerate(by))
        found = self._session.sql(
            f"SELECT r.* FROM binlane_rows AS r LEFT SEMI JOIN binlane_keys AS k ON {same}"
        )
        yield from map(tuple, _selected(found, columns).collect())


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
