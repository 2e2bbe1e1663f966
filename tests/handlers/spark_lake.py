"""A Spark handler with a folder of its own, and changes to give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from handlers import Batch, Change, HandlerContext
from handlers.spark import SparkHandler

__all__ = ["QUICK", "TYPES", "Lake", "change"]

Rows = list[dict[str, Any]]

# Compiling less: worth it in a process that ends soon, and changes nothing that Spark does.
QUICK = {"conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}}

TYPES = {"id": "int", "name": "varchar(20)"}


class Lake:
    """A handler of its own folder and what is in its tables."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.handler = SparkHandler(mode="changelog", **options)
        self.handler.open(HandlerContext(worker="test", handler="spark", folder=folder, spark=QUICK))

    def append(self, *changes: Change, table: str = "shop.orders") -> None:
        database, _, name = table.partition(".")
        self.handler.handle(Batch(table, changes, database=database, name=name))

    def rows(self, path: str = "lake/shop/orders") -> Rows:
        """The table's rows in source order."""
        frame = self.frame(path).orderBy("_offset", "_index")
        rows: Rows = frame.toArrow().to_pylist()
        return rows

    def types(self, path: str = "lake/shop/orders") -> dict[str, str]:
        return {field.name: field.dataType.simpleString() for field in self.frame(path).schema.fields}

    def frame(self, path: str) -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate().read.format("delta").load(str(self.folder / path))


def change(
    offset: int,
    after: dict[str, Any] | None,
    types: Mapping[str, str] | None,
    *,
    op: Any = "insert",
    before: dict[str, Any] | None = None,
    sql: str | None = None,
    key: Sequence[str] = ("id",),
) -> Change:
    moment = 1_790_000_000_123 + offset
    return Change(op, before, after, tuple(key), sql, moment, "cdc", 0, offset, 0, None, types)
