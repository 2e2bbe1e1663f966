"""The `spark` handler: writes batches to Spark tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from handlers.api import Batch, Handler, HandlerContext
from handlers.spark.options import SparkOptions
from handlers.spark.runtime.jars import coordinate_here
from handlers.spark.runtime.start import CLOSE_SECONDS

if TYPE_CHECKING:
    from handlers.spark.engine.lake import Lake
    from handlers.spark.function import FunctionCalls


class SparkHandler(Handler):
    """Keeps Spark tables (replicas, histories or changelogs of the source's tables), or calls your own
    function with each batch as a DataFrame.

    A table's batch is done when it is durable beside the table. It is merged into the table later, exactly
    once."""

    options_model: ClassVar[type[SparkOptions]] = SparkOptions
    function_options: ClassVar[Mapping[str, tuple[str, ...]]] = {"function": ("frame", "batch")}
    in_worker: ClassVar[bool] = True  # one Spark for all tables

    @classmethod
    def asks_for_rows(cls, options: Mapping[str, Any]) -> bool:
        return options.get("mode") != "function"

    def __init__(self, **options: Any) -> None:
        self._options = SparkOptions.model_validate(options)
        self._open: Lake | FunctionCalls | None = None
        self.close_timeout = self._options.merge.at_close + CLOSE_SECONDS

    def open(self, context: HandlerContext) -> None:
        """Start Spark, unless another handler has.

        Raises JavaError, JarsError, pydantic.ValidationError for the `spark:` section, and
        RuntimeError if Spark does not start. Raises FilesError for a store that would let workers overwrite
        each other's files."""
        opened = self._made(context)
        try:
            opened.start()
        except BaseException:
            opened.close()
            raise
        self._open = opened

    def _made(self, context: HandlerContext) -> Lake | FunctionCalls:
        coordinate_here("delta")  # another pyspark may lack modules that are imported next
        # Spark's modules take a second to import. `binlane check` need not pay for that.
        if self._options.mode == "function":
            from handlers.spark.function import FunctionCalls  # noqa: PLC0415 (see above)

            return FunctionCalls(self._options, context)
        from handlers.spark.engine.lake import Lake  # noqa: PLC0415 (see above)

        return Lake(self._options, context)

    def handle(self, batch: Batch) -> None:
        """Put the batch beside its table, or call the function.

        Raises Rejected for changes that no table can contain, PartialFailure, StopWorker if Spark is gone,
        and what Spark or the store raises."""
        if self._open is None:
            raise RuntimeError("handle was called before open")
        self._open.handle(batch)

    def status(self) -> Mapping[str, Any] | None:
        return None if self._open is None else self._open.status()

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Leave waiting rows to other workers that now get all records of their tables. Waits for running
        commits."""
        if self._open is not None:
            self._open.release(partitions)

    def close(self) -> None:
        """Merge waiting rows within `merge.at_close`. Stops Spark if no other handler uses it."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def check(self, context: HandlerContext) -> None:
        """Start Spark, or connect to its server, and query the tables' store."""
        checked = self._made(context)
        try:
            checked.check()
        finally:
            checked.close()
