"""A Spark handler with a folder of its own, and changes to give it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from delta_reading import check_read, column_types, read_delta
from spark_sessions import SHARED

from handlers import Batch, Change, HandlerContext
from handlers.spark import SparkHandler
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.read.current import current

__all__ = ["TYPES", "Counted", "Lake", "MakeLake", "Rows", "begun", "change"]

Rows = list[tuple[Any, ...]]

TYPES = {"id": "int", "name": "varchar(20)"}

# Nothing is merged until a test says so.
_LATER = {"max_age": "1h", "at_close": "5m"}


class Counted:
    """The metrics of a handler."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        self.counts[(metric, *labels.values())] += int(amount)

    def observe(self, metric: str, value: float, **labels: str) -> None:
        pass


def begun(
    options: Mapping[str, Any],
    folder: Path,
    spark: Mapping[str, Any],
    metrics: Counted,
    partitions: Callable[[], set[tuple[str, int]]],
) -> SparkHandler:
    """Return a worker's handler, which is open."""
    handler = SparkHandler(**options)
    handler.open(
        HandlerContext(
            worker="test", handler="spark", folder=folder, spark=spark, metrics=metrics, partitions=partitions
        )
    )
    return handler


class Lake:
    """A handler of its own folder and what is in its tables."""

    def __init__(
        self, folder: Path, *, mode: str = "replica", merge: Mapping[str, Any] = {}, **options: Any
    ) -> None:
        self.folder = folder
        self.options = {"mode": mode, "merge": {**_LATER, **merge}, **options}
        self.metrics = Counted()
        self.partitions = {("cdc", 0)}
        self.open()

    def open(self) -> None:
        """As a worker that starts."""
        self.handler = begun(self.options, self.folder, SHARED, self.metrics, lambda: self.partitions)

    def close(self) -> None:
        """As a worker that stops: what waits is merged."""
        self.handler.close()

    def merge(self) -> None:
        """Bring in what waits, as a worker does that is restarted."""
        self.close()
        self.open()

    def crash(self) -> None:
        """A worker that was killed and starts again: nothing that waits is merged before."""
        merge = {**self.options["merge"], "at_close": "0s"}
        self.handler._open._merger._options = type(self.handler._options.merge).model_validate(merge)  # type: ignore[union-attr]
        self.merge()

    def take(
        self,
        *changes: Change,
        table: str = "shop.orders",
        shard: int | None = None,
        topic_id: str | None = None,
    ) -> None:
        database, _, name = table.partition(".")
        ids = {} if topic_id is None else {"cdc": topic_id}
        self.handler.handle(Batch(table, changes, database=database, name=name, shard=shard, topic_ids=ids))

    def status(self, table: str = "shop.orders") -> dict[str, Any]:
        found = self.handler.status()
        assert found is not None
        return {each["table"]: each for each in found["tables"]}.get(table, {})

    def sink(self, table: str = "orders") -> TableSink:
        """What serves a table of any database."""
        [found] = [each for each in self.handler._open._tables.known() if each.table == table]  # type: ignore[union-attr]
        return found

    # ---- what a user sees

    def rows(self, columns: str = "*", path: str = "lake/shop/orders") -> Rows:
        """Of the Spark table, in order."""
        return _in_order(read_delta(self.folder / path, columns, spark=lambda: self.spark))

    def view(self, columns: str = "*", path: str = "lake/shop/orders") -> Rows:
        """Of the table with what waits."""
        frame = current(self.spark, str(self.folder / path), prefix=self.options.get("prefix", "_"))
        check_read(frame, str(self.folder / path))
        names = [each.strip() for each in columns.split(",")]
        return _in_order(frame.selectExpr(*names).toArrow().to_pylist())

    def types(self, path: str = "lake/shop/orders") -> dict[str, str]:
        return column_types(self.folder / path)

    def sql(self, statement: str, path: str = "lake/shop/orders") -> Any:
        """As another writer; `{t}` stands for the table."""
        return self.spark.sql(statement.replace("{t}", f"delta.`{self.folder / path}`"))

    @property
    def spark(self) -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()


MakeLake = Callable[..., Lake]


def _in_order(rows: list[dict[str, Any]]) -> Rows:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def change(
    offset: int,
    after: dict[str, Any] | None,
    types: Mapping[str, str] | None = TYPES,
    *,
    op: Any = "insert",
    before: dict[str, Any] | None = None,
    sql: str | None = None,
    key: Sequence[str] = ("id",),
) -> Change:
    """Record `offset` of cdc[0]; so many milliseconds later than the first."""
    moment = 1_790_000_000_123 + offset
    return Change(op, before, after, tuple(key), sql, moment, "cdc", 0, offset, 0, None, types)
