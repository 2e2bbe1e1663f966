"""Objects that all tables of a handler share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql import SparkSession

from handlers.api import HandlerContext
from handlers.mysql.ddl import TableName
from handlers.progress import KnownIds, PassingOver
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.iceberg.catalog import IcebergCatalog
from handlers.spark.locations import Locations
from handlers.spark.log.stores.interface import Files
from handlers.spark.log.streams import Packs
from handlers.spark.options import SparkOptions
from handlers.spark.runtime.session import SharedSpark


@dataclass(frozen=True, slots=True)
class World:
    """Created once, when the handler is opened."""

    options: SparkOptions
    context: HandlerContext
    spark: SharedSpark
    locations: Locations
    files: Files
    packs: Packs
    without_spark: WithoutSpark
    """Makes commits without Spark."""
    iceberg: IcebergCatalog | None
    overrides: Mapping[str, pa.DataType]
    settle: Callable[[TableName], None]
    """See Surroundings.settle. For tables other than the statement's own."""
    leaving: Callable[[TableName], None]
    """See Surroundings.leaving."""
    databases_of: Callable[[str], Sequence[str]]
    own: threading.local
    """The Spark session of each thread that writes."""
    passing_over: PassingOver
    known_ids: KnownIds

    @property
    def merges(self) -> bool:
        """Whether segments are merged into a table. Otherwise they are the table."""
        return self.options.format != "parquet"

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """This thread's session, none for Iceberg. Raises SparkStarts within `in_background`."""
        if self.iceberg is not None:
            yield cast(SparkSession, None)
            return
        if getattr(self.own, "is_background", False):
            self.spark.start.check_done()
        session = getattr(self.own, "session", None)
        self.own.session = self.spark.fresh() if session is None else self.spark.renewed(session)
        yield self.own.session

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Inside the block, `session` does not wait for a Spark that starts."""
        self.own.is_background = True
        try:
            yield
        finally:
            self.own.is_background = False
