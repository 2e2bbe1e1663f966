"""What a handler is given and what it may answer: the public interface of `handlers`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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

    A change of a row's primary key comes as two: a delete of the old key, then an insert of the new one.
    `before` and `after` are whole rows (column -> value) as far as the source sends them; an insert has no
    `before`, a delete no `after`, a DDL statement and a truncate neither. Both are the handler's own. Of a
    truncate, `after` is what to set in all rows instead of removing them, where it is NULL: `sql` alone gets
    such changes (`deletes: mark`). `types` maps each column to the source's own type text (`decimal(10,2)`,
    `bigint unsigned`) where the source tells it, and is shared between changes: read it, never change it.
    Times are milliseconds since 1970 in UTC.

    What a change does not tell is said by the format that read it, never inferred from values or types:

    - `lacks`: the columns of the table whose value after the change the source did not send. They are absent
      from `after`, and a target keeps what it has. Empty: `after` is the whole row, and a target replaces
      its row by it. None: `after` may lack columns, and the source does not say which. None of a delete:
      `before` may lack columns likewise.
    - `before_is_whole`: whether `before` holds the old value of every column. If not, it holds the key, and
      perhaps other columns; a column that is absent was not sent.
    - `moves_key`: this delete, or this insert, is half of an update that changed the row's key. If both are
      in one record, the insert follows its delete (`handlers.rows.is_move`). What the insert `lacks` is in
      the row of the old key."""

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
        """Whether `after` is all there is of the row; else a target keeps what `after` does not have."""
        return self.lacks == _NOTHING

    @property
    def key(self) -> Row | None:
        """The primary-key columns of the row as it is after the change (before it, for a delete).

        None where the table has no primary key, and for DDL."""
        row = self.after if self.after is not None else self.before
        if row is None or not self.key_columns:
            return None
        return {column: row.get(column) for column in self.key_columns}


class TraceHeaders(Protocol):
    """Headers to be passed on, {name: value}."""

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
    """What tells `trace_headers`; only there where the worker traces."""

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
        """From 1; counts how often these changes were given to this handler."""
        self._positions = positions or {}
        self.records = len(self.changes) if records is None else records
        """How many Kafka records the changes came in."""
        self.shard = shard
        """With `order_by: row`, which share of the table's keys all its changes belong to (see
        `handlers.sharding`); None for a batch of a whole table: everything before it is done then."""
        self.topic_ids = topic_ids or {}
        """Topic -> Kafka's id of it, as text: a topic that was made anew has another id, and its offsets have
        nothing to do with those before. A topic whose id is not known is left out."""
        self.replay_of = replay_of
        """(topic, partition, offset) at which the record stood that a replayed dead letter holds: its changes
        have a place of their own. None for what comes from its topic."""

    @property
    def positions(self) -> Positions:
        """{(topic, partition): (first offset, last offset)}."""
        if callable(self._positions):
            self._positions = self._positions()
        return self._positions

    def part(self, first: int, end: int) -> Batch:
        """The changes from `first` up to `end` as a batch of their own."""
        part = copy(self)
        part.changes = changes = self.changes[first:end]
        part._positions = lambda: positions_of(changes)
        part.records = len({(change.topic, change.partition, change.offset) for change in changes})
        return part

    @property
    def is_traced(self) -> bool:
        """Whether the worker traces, so that `trace_headers` may have something to tell."""
        return hasattr(self, "traced_by")

    def trace_headers(self, change: Change | None = None) -> Mapping[str, str]:
        """`traceparent` and `tracestate` (W3C Trace Context) to be passed on with what is made of the batch,
        or of one of its changes; empty where the worker does not trace, or the change's record has none.

        In `handle` the batch's span is OpenTelemetry's current one: what is instrumented goes on with it."""
        if not self.is_traced:
            return {}
        if change is None:
            return self.traced_by.of_batch()
        return self.traced_by.of_record(change.topic, change.partition, change.offset)

    def __repr__(self) -> str:
        return f"Batch({self.table}, {self.records} records, attempt {self.attempt})"


def positions_of(changes: Sequence[Change]) -> Positions:
    """As `Batch.positions`, of changes in source order."""
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
    """The lane it serves, for a handler with `per_lane = True`; else None."""
    lanes: int = 1
    """How many batches may be in `handle` at once."""
    folder: Path
    """The configuration file's folder: relative paths in options start here."""
    start_timeout: float = 300.0
    """Seconds that `open` may take; past them it is given up (`start_timeout:` in the configuration)."""
    stopping: Callable[[], bool] | None = None
    """Given where a worker starts its handlers: whether it stops meanwhile, or later. `open` may then go on
    in a thread of its own with what its target needs long for, as the Spark handler does; what fails is told
    to `stop_worker`, and batches that wait for it are let go with TargetUnavailable when the worker stops.
    None: `open` returns when all is done. Any thread; answers at once."""
    spark: Mapping[str, Any] = {}
    """The `spark:` section of the configuration."""
    stop_worker: Callable[[BaseException], None] | None = None
    """For a handler with threads of its own: tell the error without which it cannot go on (StopWorker, as
    `handle` would raise it) and the worker drains and stops with exit code 1. Returns at once; any thread.
    None where no worker runs that could be stopped."""
    metrics: HandlerMetrics = NO_METRICS
    """Counts what happens outside of `handle`."""
    handles: Callable[[str], bool] | None = None
    """Whether the records of a table ("database.table") come to this handler, by the rule that matches it: a
    DDL statement may name other tables than its own. None: all do. Any thread."""
    partitions: Callable[[], Collection[tuple[str, int]]] | None = None
    """For a handler with threads of its own: the partitions (topic, number) whose records this worker has to
    handle now. Any thread; answers at once. None where no worker runs (a command): then a handler is to see
    to what it is handed, and to nothing else."""


class Handler:
    """Subclass this; the other keys of the configuration entry arrive as keyword arguments.

    One object serves all lanes (so `handle` runs in several threads, each with another table), unless
    `per_lane` is True: then each lane has its own. Batches of one table never run at the same time."""

    per_lane: ClassVar[bool] = False
    options_model: ClassVar[type[BaseModel] | None] = None
    """A pydantic model of the options, if there is one: `binlane check` reports its errors key by key."""
    function_options: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Options that name a function (`package.module:function`), with the names of what it is called with:
    `binlane check` tells when there is no such function, or when it cannot be called so."""

    close_timeout: float = 30.0
    """Seconds that `close` may take. A worker that stops waits no longer, and ends with exit code 1."""

    def __init__(self, **options: Any) -> None:
        if options:
            found = ", ".join(sorted(options))
            raise TypeError(f"{type(self).__name__} takes no options, found: {found}")

    def open(self, context: HandlerContext) -> None:
        """Called once, before the first batch. Raising stops the worker, and so does taking longer than
        `context.start_timeout`."""

    def handle(self, batch: Batch) -> None:
        """Apply the batch. Returning means done; raising means retry (see `PartialFailure`)."""
        raise TypeError(f"{type(self).__name__} has no handle method")

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Called when partitions (topic, number) leave this worker, after their last batch: another worker is
        about to have them. For a handler that works on behind `handle`: what it has to do for them is to end.

        The rebalance waits for it as long as `revoke_timeout` leaves (for partitions that were lost: not at
        all), then goes on without it. It runs in a thread of its own, with batches of other partitions, and
        such of these as did not end in time, in `handle` meanwhile; `close` waits for it. They may come back
        later."""

    def close(self) -> None:
        """Called once, after the last batch, and before the worker leaves its group."""

    def status(self) -> Mapping[str, Any] | None:
        """What there is to tell besides what the worker knows itself: shown by `/api/status`, the status page
        and `binlane status`. None: nothing.

        Between `open` and `close`, from any thread, every second or so: answer at once, from memory (while
        one call hangs there is no other, and what was told last is shown with an `error`). Plain values (str,
        int, float, bool, None, lists, dicts). Keys that are shown with their meaning:
        `spark`: {"master", "version", "ui", "up"}; `tables`: a list of {"table", "waiting_rows",
        "waiting_bytes", "waiting_seconds", "views_wait", "merged_source_time_ms", "error"}, what was received
        and is not in its table yet."""
        return None

    def check(self, context: HandlerContext) -> None:
        """Reach the target without changing it (`binlane check --connect`). Raise when it cannot be
        reached."""
