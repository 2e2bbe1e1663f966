"""The public interface of `handlers`: what a handler receives, and how it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import msgspec

from handlers.failures import PartialFailure, Rejected, StopWorker, TargetUnavailable
from handlers.metrics import NO_METRICS, HandlerMetrics

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "Batch",
    "Change",
    "Handler",
    "HandlerContext",
    "Operation",
    "PartialFailure",
    "Rejected",
    "StopWorker",
    "TargetUnavailable",
    "TraceHeaders",
]

Operation = Literal["insert", "update", "delete", "snapshot", "ddl", "truncate"]
Row = dict[str, Any]
_NOTHING: frozenset[str] = frozenset()
Positions = Mapping[tuple[str, int], tuple[int, int]]


class Change(msgspec.Struct, frozen=True, gc=False):
    """One row change, or one DDL statement, in source order.

    A change of a row's primary key becomes two: a delete of the old key, then an insert of the new one.
    `before` and `after` are rows (column -> value), as complete as the source sends them. An insert has no
    `before`, a delete no `after`, a DDL statement and a truncate neither. The handler may modify both. A
    truncate with an `after` sets these values in all rows where they are NULL, and removes no rows. Only
    `sql` gets it (`deletes: mark`). `types` maps each column to the source's own type text (`decimal(10,2)`,
    `bigint unsigned`), if the source sends it. Changes share it, so never modify it. Times are milliseconds
    since 1970 in UTC.

    The format that read the change reports what is missing, and never infers it from values or types:

    - `lacks`: the table's columns whose new value the source did not send. They are absent from `after`, and
      a target keeps its values. Empty: `after` is the whole row, and replaces the target's row. None: `after`
      (in a delete, `before`) may lack columns, and the source does not say which.
    - `before_is_whole`: whether `before` contains the old value of every column. If not, it contains the key,
      and perhaps other columns. The source did not send an absent column.
    - `moves_key`: this delete or insert is half of an update that changed the row's key. If one record
      contains both, the insert follows its delete (`handlers.rows.is_move`). The old key's row contains the
      values that the insert `lacks`."""

    op: Operation
    before: Row | None
    after: Row | None
    key_columns: tuple[str, ...] | None
    sql: str | None
    source_time_ms: int
    topic: str
    partition: int
    offset: int
    index: int
    transaction: str | None
    types: Mapping[str, str] | None
    lacks: frozenset[str] | None = frozenset()
    before_is_whole: bool = True
    moves_key: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether `after` is the whole row. If not, a target keeps the columns that `after` does not have."""
        return self.lacks == _NOTHING

    @property
    def key(self) -> Row | None:
        """The primary-key columns of the row after the change (before it, for a delete).

        None if the table has no primary key, and for DDL."""
        row = self.after if self.after is not None else self.before
        if row is None or not self.key_columns:
            return None
        return {column: row.get(column) for column in self.key_columns}


class TraceHeaders(Protocol):
    """Trace headers to pass on, {name: value}."""

    def of_batch(self) -> Mapping[str, str]: ...
    def of_record(self, topic: str, partition: int, offset: int) -> Mapping[str, str]: ...


class Batch:
    """Consecutive changes of one table, in source order."""

    __slots__ = (
        "_positions",
        "attempt",
        "changes",
        "database",
        "name",
        "records",
        "replay_of",
        "shard",
        "table",
        "topic_ids",
        "traced_by",
    )

    traced_by: TraceHeaders
    """The source of `trace_headers`. Set only if the worker traces."""

    def __init__(
        self,
        table: str,
        changes: Sequence[Change],
        *,
        database: str,
        name: str,
        attempt: int = 1,
        positions: Positions | Callable[[], Positions] | None = None,
        records: int | None = None,
        shard: int | None = None,
        topic_ids: Mapping[str, str] | None = None,
        replay_of: tuple[str, int, int] | None = None,
    ) -> None:
        self.table = table
        """`database.name`."""
        self.database = database
        self.name = name
        self.changes = changes
        """In source order."""
        self.attempt = attempt
        """From 1: how many times this handler has received these changes."""
        self._positions = positions or {}
        self.records = len(self.changes) if records is None else records
        """The number of Kafka records that contained the changes."""
        self.shard = shard
        """With `order_by: row`, the share of the table's keys that all its changes belong to (see
        `handlers.rows`). None for a batch of the whole table: everything before it is then finished."""
        self.topic_ids = topic_ids or {}
        """Topic -> Kafka's id of the topic, as text. A recreated topic has another id, and its offsets start
        again. Topics whose ids are unknown are left out."""
        self.replay_of = replay_of
        """The original (topic, partition, offset) of the record in a replayed dead letter. The changes have
        positions of their own. None if the record comes from its topic."""

    @property
    def positions(self) -> Positions:
        """{(topic, partition): (first offset, last offset)}."""
        if callable(self._positions):
            self._positions = self._positions()
        return self._positions

    def part(self, first: int, end: int) -> Batch:
        """Return the changes from `first` up to `end` as a batch of their own."""
        part = self.having(changes := self.changes[first:end])
        part._positions = lambda: positions_of(changes)
        part.records = len({(change.topic, change.partition, change.offset) for change in changes})
        return part

    def having(self, changes: Sequence[Change]) -> Batch:
        """Return the same batch with other changes."""
        other = copy(self)
        other.changes = changes
        return other

    @property
    def is_traced(self) -> bool:
        """Whether the worker traces. If not, `trace_headers` is always empty."""
        return hasattr(self, "traced_by")

    def trace_headers(self, change: Change | None = None) -> Mapping[str, str]:
        """Return `traceparent` and `tracestate` (W3C Trace Context) to pass on with data made from the batch,
        or from one of its changes. Empty if the worker does not trace, or if the change's record has no
        headers.

        In `handle`, the batch's span is OpenTelemetry's current span, so instrumented libraries continue it.
        """
        if not self.is_traced:
            return {}
        if change is None:
            return self.traced_by.of_batch()
        return self.traced_by.of_record(change.topic, change.partition, change.offset)

    def __repr__(self) -> str:
        return f"Batch({self.table}, {self.records} records, attempt {self.attempt})"


def positions_of(changes: Sequence[Change]) -> Positions:
    """The same as `Batch.positions`, for changes in source order."""
    positions: dict[tuple[str, int], tuple[int, int]] = {}
    for change in changes:
        partition = (change.topic, change.partition)
        first, _ = positions.get(partition, (change.offset, 0))
        positions[partition] = (first, change.offset)
    return positions


class HandlerContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a handler runs."""

    worker: str
    """The worker's name (`name:` in the configuration; default: the group id)."""
    handler: str
    """The handler's own name, as metrics show it."""
    lane: int | None = None
    """The lane that this handler object serves, if `per_lane` is True. None if it serves all lanes."""
    lanes: int = 1
    """The most batches that may be in `handle` at the same time."""
    folder: Path
    """The configuration file's folder. Relative paths in options start here."""
    start_timeout: float = 300.0
    """Seconds after which `open` is abandoned (`start_timeout:` in the configuration)."""
    stopping: Callable[[], bool] | None = None
    """Whether the worker is stopping. Set if a worker starts the handler. `open` may then return and finish
    slow preparations in its own thread, as the Spark handler does. It reports an error to `stop_worker`. If
    the worker stops, batches that wait for the preparations raise TargetUnavailable. None: `open` returns
    when all is ready. Any thread; returns at once."""
    spark: Mapping[str, Any] = {}
    """The `spark:` section of the configuration."""
    stop_worker: Callable[[BaseException], None] | None = None
    """For a handler with threads of its own: report the error after which it cannot continue (StopWorker, as
    `handle` would raise it). The worker then drains and stops with exit code 1. Returns at once. Any thread.
    None if no worker runs that could be stopped."""
    metrics: HandlerMetrics = NO_METRICS
    """Counts what happens outside of `handle`."""
    handles: Callable[[str], bool] | None = None
    """Whether this handler gets the records of a table ("database.table"), by the rule that matches the
    table. A DDL statement may name tables other than its own. None: it gets all tables. Any thread."""
    partitions: Callable[[], Collection[tuple[str, int]]] | None = None
    """For a handler with threads of its own: the partitions (topic, number) whose records this worker must
    handle now. Any thread; returns at once. None if no worker runs (a command): the handler then processes
    the batches that it receives, and nothing else."""


class Handler:
    """The base class of handlers. The other keys of the configuration entry arrive as keyword arguments.

    `handle` may be a coroutine function (`async def`), and then `open`, `release`, `close` and `check` as
    well. They run on the process's one event loop, while a lane's thread waits for each batch.

    One object serves all lanes, so `handle` runs in several threads, each with a different table. If
    `per_lane` is True, each lane has its own object. Two batches of one table never run at the same time."""

    per_lane: ClassVar[bool] = False
    options_model: ClassVar[type[BaseModel] | None] = None
    """An optional pydantic model of the options. `binlane check` reports its errors key by key."""
    function_options: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Options that name a function (`package.module:function`), with the names of its arguments. `binlane
    check` reports a function that does not exist or does not accept these arguments."""

    in_worker: ClassVar[bool] = False
    """With `lanes.processes`, each child process has its own object. True: only the worker itself has one,
    for example because it shares memory with other handlers."""

    close_timeout: float = 30.0
    """Seconds that `close` may take. After that, a stopping worker ends with exit code 1."""

    def __init__(self, **options: Any) -> None:
        if options:
            found = ", ".join(sorted(options))
            raise TypeError(f"{type(self).__name__} takes no options, found: {found}")

    @classmethod
    def stays(cls, options: Mapping[str, Any]) -> bool:
        """Whether a handler with these options must be in the worker. Default: `in_worker`."""
        return cls.in_worker

    @classmethod
    def asks_for_rows(cls, options: Mapping[str, Any]) -> bool:
        """Whether a handler that stays looks at rows only by `handlers.rows.on_rows`. Then child processes
        decode its batches, and keep their rows."""
        return False

    def open(self, context: HandlerContext) -> Awaitable[None] | None:
        """Called once, before the first batch. The worker stops if it raises, or if it takes longer than
        `context.start_timeout`."""
        return None

    def handle(self, batch: Batch) -> Awaitable[None] | None:
        """Apply the batch. Return: the batch is finished. Raise: it is retried (see `PartialFailure`)."""
        raise TypeError(f"{type(self).__name__} has no handle method")

    def release(self, partitions: Collection[tuple[str, int]]) -> Awaitable[None] | None:
        """Called when partitions (topic, number) are revoked from this worker, after their last batch. A
        handler that continues to work behind `handle` must end this work: another worker gets the partitions.

        The rebalance waits for `release` for the rest of `revoke_timeout`, then continues without it. It does
        not wait for partitions that were lost. `release` runs in its own thread. Batches of other partitions,
        and late batches of these, may run meanwhile. `close` waits for it. The partitions may be assigned
        again."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Called once, after the last batch and before the worker leaves its group."""
        return None

    def status(self) -> Mapping[str, Any] | None:
        """Return facts for `/api/status`, the status page and `binlane status`, or None if there are none.

        Called between `open` and `close`, from any thread, about every second. Return at once, from memory.
        While a call hangs, the worker makes no other one and shows the last answer with an `error`. Use plain
        values (str, int, float, bool, None, lists, dicts). Some keys have a defined meaning. `spark`:
        {"master", "version", "ui", "up"}. `tables`: a list of {"table", "waiting_rows", "waiting_bytes",
        "waiting_seconds", "views_wait", "merged_source_time_ms", "error"}, for data that was received and is
        not in its table yet."""
        return None

    def check(self, context: HandlerContext) -> Awaitable[None] | None:
        """Connect to the target without changing it (`binlane check --connect`). Raise an error if that
        fails."""
        return None
