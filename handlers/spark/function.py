"""`mode: function`: passes each batch to your own function as a DataFrame."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from handlers.api import Batch, HandlerContext, PartialFailure, Rejected, StopWorker
from handlers.loading.registry import load_function
from handlers.loading.user_code import refuse_unrun
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.rows.column_types import override
from handlers.spark.rows.pieces import Piece, RowPiece, pieces
from handlers.spark.runtime.errors import told
from handlers.spark.runtime.session import acquire, release

ARGUMENTS = ("frame", "batch")


class FunctionFailure(RuntimeError):
    """The function failed in Spark. The message contains Spark's text, without its stack."""


class FunctionCalls:
    """Calls `function(frame, batch)` for the batches of all tables. Any thread may hand over a batch.

    The frame has one row per change, in source order. Its first columns are `_op`, `_source_time`, `_topic`,
    `_partition`, `_offset`, `_index`, `_sql` (with the option `prefix`), and `_before`, the row before an
    update. The row's columns follow (after the change, for a delete before it), in the source's types. DDL
    and truncates are rows of their own, with only `_op` and `_sql`. If columns or types change inside a
    batch, the function is called for each part, in order.

    At least once: a batch that failed, or was not committed before a crash, arrives again, perhaps cut
    differently. If the function returns, its changes are done. If it raises, none of them is. It may raise
    `PartialFailure` and `Rejected` like any handler, with places in `batch.changes`. During the call,
    `frame.sparkSession` is not shared. Its settings stay for later calls."""

    def __init__(self, options: SparkOptions, context: HandlerContext) -> None:
        """Start Spark, unless another handler has.

        Raises HandlerTypeError for the function, and what `session.acquire` raises."""
        assert options.function is not None
        self._function = load_function(options.function, context.folder, ARGUMENTS)
        self._name = options.function
        self._prefix = options.prefix
        self._overrides = {column.lower(): override(text) for column, text in options.columns.items()}
        section = SparkSection.model_validate(dict(context.spark))
        self._spark = acquire(
            section, context.folder, context.worker, context.stop_worker, within=context.start_timeout
        )
        self._idle: deque[SparkSession] = deque()  # its methods are atomic

    def handle(self, batch: Batch) -> None:
        """Call the function for each piece of the batch.

        Raises Rejected for a value that does not fit its type, StopWorker if Spark is gone, TargetUnavailable
        while a Connect server is away. Raises FunctionFailure for other errors of Spark, and what the
        function raises. After the first piece, raises PartialFailure with one of these as its cause."""
        for piece in self._pieces(batch):
            assert isinstance(piece, RowPiece)  # also for statements
            whole = piece.start == 0 and piece.stop == len(batch.changes)
            part = batch if whole else batch.part(piece.start, piece.stop)
            try:
                self._call(piece.rows, part)
            except StopWorker:
                raise
            except Exception as error:
                if piece.start == 0:
                    raise
                raise _moved(error, piece.start) from error

    def start(self) -> None:
        """Does nothing: no work runs outside the calls."""

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Does nothing: no batch waits."""

    def status(self) -> Mapping[str, Any]:
        return {"spark": self._spark.status()}

    def check(self) -> None:
        """Query Spark, wherever it runs."""
        try:
            self._spark.session.sql("SELECT 1").collect()
        except Exception as error:
            self._spark.stop_worker_if_gone(error)
            raise

    def close(self) -> None:
        while self._idle:
            self._spark.drop(self._idle.pop())
        release()

    def _pieces(self, batch: Batch) -> Iterator[Piece]:
        return pieces(
            batch.changes,
            mode="function",
            prefix=self._prefix,
            overrides=self._overrides,
            known=None,
            table=batch.table,
        )

    def _call(self, rows: pa.Table, batch: Batch) -> None:
        try:
            with self._spark.slots, self._session() as session:
                # Spark infers timestamp_ltz for Arrow's timestamps without a zone.
                schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
                refuse_unrun(self._function(session.createDataFrame(rows, schema), batch), self._function)
        except (PartialFailure, Rejected, StopWorker):
            raise
        except Exception as error:
            self._spark.stop_worker_if_gone(error)
            if isinstance(error, Py4JError | PySparkException):
                # Spark's errors ask Java for their text, and Java may be gone by then.
                first = batch.changes[0]
                place = f"{batch.table}, {first.topic}[{first.partition}] from offset {first.offset} on"
                raise FunctionFailure(f"{place}: {self._name}: {told(error)}") from None
            raise

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        """A session that no other call has meanwhile, because temporary views have names."""
        try:
            session = self._spark.renewed(self._idle.pop())
        except IndexError:
            session = self._spark.fresh()
        try:
            yield session
        finally:
            self._idle.append(session)


def _moved(error: Exception, start: int) -> PartialFailure:
    """Convert an error of the call with the changes from `start` on into one of the whole batch."""
    if isinstance(error, PartialFailure):
        return PartialFailure(start + error.done, error.cause)
    if isinstance(error, Rejected) and error.at != 0:
        # Only the change at `done` can be reported as rejected. The next attempt begins there.
        return PartialFailure(start, FunctionFailure(str(error)))
    return PartialFailure(start, error)
