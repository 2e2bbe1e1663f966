"""The `spark` handler: batches go to Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from handlers.api import Batch, Handler, HandlerContext
from handlers.spark.options import SparkOptions

if TYPE_CHECKING:
    from handlers.spark.changelog import Changelog

__all__ = ["SparkHandler"]


class SparkHandler(Handler):
    """`mode: changelog`: every change of a source table is appended as a row to one Delta table."""

    options_model: ClassVar[type[SparkOptions]] = SparkOptions

    def __init__(self, **options: Any) -> None:
        self._options = SparkOptions.model_validate(options)
        self._changelog: Changelog | None = None

    def open(self, context: HandlerContext) -> None:
        """Start Spark, unless another handler has.

        Raises JavaNotFound, JarsUnavailable, pydantic.ValidationError for the `spark:` section, and
        RuntimeError when Spark does not start.
        """
        # Spark's modules take a second to import, which `binlane check` need not pay.
        from handlers.spark.changelog import Changelog  # noqa: PLC0415 (see above)

        self._changelog = Changelog(self._options, context)

    def handle(self, batch: Batch) -> None:
        """Append the batch: one Delta commit, or several when the table's columns change within it.

        Raises UnfitValue and IncompatibleSchema (trying again does not help), PartialFailure after the first
        of several commits, StopWorker when Spark is gone, else what Spark raises.
        """
        if self._changelog is None:
            raise RuntimeError("handle was called before open")
        self._changelog.append(batch)

    def close(self) -> None:
        """Stop Spark, if no other handler uses it."""
        if self._changelog is not None:
            self._changelog.close()
            self._changelog = None

    def check(self, context: HandlerContext) -> None:
        """Start Spark and ask the file system that the tables are on."""
        self.open(context)
        try:
            if self._changelog is not None:
                self._changelog.check()
        finally:
            self.close()
