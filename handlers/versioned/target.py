"""The part of versioned targets that is the same for every server: how a batch is written, and a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from handlers.api import Batch, Change, Handler, HandlerContext, Rejected, Row
from handlers.http.parts import RowRefused
from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.statement_of_change import WholeTables, operations_of
from handlers.options.shared import VersionedOptions
from handlers.options.templates import place_of
from handlers.progress import PassingOver
from handlers.versioned.row_states import (
    Held,
    RowMoved,
    State,
    all_states,
    check_late,
    last_states,
    partition_of,
)
from handlers.versioned.versions import (
    EPOCH_BITS,
    BeyondVersions,
    Memory,
    Topic,
    Unfit,
    UnfitColumn,
    Versions,
    remembering,
    versions_of,
)

log = get_logger("handlers.versioned")

_ROUNDS = 40
"""Most attempts for one batch. Each is needed only because this or another writer changed the table."""
_RENAMED = "rows of a renamed table stay where they are"
_LEFT: Mapping[type, str] = {
    ddl.AddColumn: "a new column is added with the first row that has it, and existing rows do not change",
    ddl.DropColumn: "a dropped column stays, and new rows have no value there",
    ddl.RenameColumn: "a renamed column gets a new column beside the one with its former name",
    ddl.ModifyColumn: "a column keeps its type",
    ddl.ChangeKey: "a table keeps its sorting key, and its rows their ids",
    ddl.LoseRows: "rows of partitions stay",
}
"""Statements that are not applied, with what happens instead."""


class ColumnsChanged(Exception):
    """The target's columns changed after they were read and before the write."""


class Place(Protocol):
    """A table of ClickHouse or an index of Elasticsearch."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, Any]:
        """Column name -> type."""

    @property
    def memory(self) -> Memory: ...


P = TypeVar("P", bound=Place)


class Dialect(Protocol[P]):
    """The operations that differ between kinds of targets. All raise TargetUnavailable. Any thread."""

    @property
    def keeps_all(self) -> bool:
        """Whether each change is written, and not only the last state of each row."""

    def close(self) -> None: ...
    def check(self) -> None:
        """Check that the target is supported and grants the needed rights. Changes nothing. The error says
        what is missing."""

    def name_of(self, database: str, table: str) -> str:
        """Return the name of a table's place for messages."""

    def key_of(self, place: P | None, row: Row, key_columns: tuple[str, ...] | None) -> str:
        """Return the text of a row's key. Raises MissingValue, TypeError."""

    def find(self, database: str, table: str) -> P | None:
        """Read the table's current place; None if it does not exist. Raises Unfit."""

    def last_version(self, place: P) -> int:
        """Return the highest row version of a place without a memory; 0 if no row has one. Raises Unfit if
        there are rows that `empty` would not find."""

    def lacking(self, place: P | None, states: Sequence[State], key: Sequence[str]) -> Mapping[str, Any]:
        """Return the columns to add before these rows are written, with their types. Raises Unfit."""

    def make(
        self, name: tuple[str, str], columns: Mapping[str, Any], key: Sequence[str], memory: Memory
    ) -> None:
        """Create the place of a table (database, table), unless another worker does at the same time."""

    def add(self, place: P, columns: Mapping[str, Any]) -> None:
        """Add the columns that are still missing."""

    def remember(self, place: P, memory: Memory) -> None:
        """Store this revision, unless another writer has already stored one with this number."""

    def write(self, place: P, states: Sequence[State], check: Callable[[State, Held], None]) -> int:
        """Write all states. Return how many rows already had a later version in the target. Call `check` for
        rows that are read there. Raises RowRefused with a place in the batch, or as `check` does."""

    def empty(self, place: P, *, version: int, partition: str, time: int) -> int:
        """Remove rows older than a statement. Returns the number of removed rows.

        For rows of the statement's own partition, the version decides. Later rows stay, even if the
        statement comes again. Versions of other partitions cannot be compared: of those rows, the ones go
        that the source changed before `time` (its clock, in milliseconds). A removed row leaves a version:
        the statement's, or its own plus 1 in another partition, which blocks no later change from there."""


class VersionedTarget(Generic[P]):
    """Writes batches to a versioned target through its dialect. See VersionedHandler."""

    def __init__(self, dialect: Dialect[P], options: VersionedOptions, context: HandlerContext) -> None:
        self._dialect = dialect
        self._options = options
        self._log = log.bind(handler=context.handler)
        self._passing_over = PassingOver(context, log)
        self._whole_tables = WholeTables(
            options.truncate, options.drop_tables, _RENAMED, context.handles or (lambda _: True), self._log
        )

    def handle(self, batch: Batch) -> None:
        """Raises Rejected, TargetUnavailable, FormerTopic, Unfit, UnfitColumn, RowMoved, ColumnsChanged."""
        changes = batch.changes
        # The source may have changed the primary key between two rows, with no statement between them.
        for (is_statement, _), some in groupby(
            range(len(changes)), lambda at: (changes[at].op in ("ddl", "truncate"), changes[at].key_columns)
        ):
            if not is_statement:
                self._write(batch, list(some))
                continue
            for change in (changes[at] for at in some):
                self._tell_left(change, batch)
                for named in self._whole_tables.to_empty(change, batch):
                    self._empty(named, change, batch)

    def _write(self, batch: Batch, places: Sequence[int]) -> None:
        ready = self._ready(ddl.TableName(batch.database, batch.name), batch, places)
        assert ready is not None, "it is not None for rows"
        place, _, states = ready

        def topics() -> Sequence[Topic] | None:
            now = self._find(batch.database, batch.name)
            return None if now is None else now.memory.topics

        def check(state: State, held: Held) -> None:
            check_late(batch, state, held, base=self._options.epoch, topics=topics)

        try:
            late = self._dialect.write(place, states, check)
        except RowRefused as error:
            now = self._find(batch.database, batch.name)
            if now is None or now.columns != place.columns:
                raise ColumnsChanged(
                    f"{place.name}: its columns were changed meanwhile; trying again with the new ones"
                ) from None
            told = place_of(batch.changes[error.at], batch.table)
            blamed = next((state.blamed for state in states if state.at == error.at), error.at)
            raise Rejected(f"{told}: {place.name}: {error}", at=blamed) from None
        self._passing_over.passed_over(batch.table, late)

    def _ready(
        self, named: ddl.TableName, batch: Batch, rows: Sequence[int]
    ) -> tuple[P, Versions, Sequence[State]] | None:
        """Prepare a table's place: it has the columns of these rows, and remembers the topics. Return it with
        the rows' states.

        For a statement (no rows), None if binlane has written nothing there. Raises as `handle` does."""
        for _ in range(_ROUNDS):
            place = self._find(*named)
            former = Memory() if place is None else place.memory
            versions = versions_of(
                batch, former.topics, base=self._options.epoch, again=self._options.topic_again
            )
            key = (batch.changes[rows[0]].key_columns if rows else None) or ()
            if batch.replay_of is not None and key and former.key not in ((), key):
                raise RowMoved(
                    f"{self._dialect.name_of(*named)} has another primary key than the dead letter's rows "
                    f"({', '.join(key)}): let the source write them again"
                )
            memory = remembering(
                former,
                table=str(named),
                topics=versions.topics,
                epoch=self._options.epoch,
                key=key,
                partitions={partition_of(batch, batch.changes[at]) for at in rows},
            )
            those = all_states if self._dialect.keeps_all else last_states
            states = list(those(batch, versions.of, partial(self._dialect.key_of, place), rows))
            lacking = self._dialect.lacking(place, states, key)
            if not rows and (place is None or lacking):
                return None
            if place is None:
                self._make(named, lacking, key, memory.next())
            elif lacking:
                if not self._options.create:
                    listed = ", ".join(f"{name} ({kind})" for name, kind in sorted(lacking.items()))
                    raise UnfitColumn(f"{place.name} lacks {listed}, and create is false: add them")
                self._dialect.add(place, lacking)
            elif memory != former:
                self._passing_over.made_anew(str(named), versions.made_anew)
                self._dialect.remember(place, memory.next())
            else:
                return place, versions, states
        raise Unfit(f"others keep changing the target of {named}, or it disappears right after it is created")

    def _find(self, database: str, table: str) -> P | None:
        place = self._dialect.find(database, table)
        if place is None:
            return None
        memory = place.memory
        if memory.table not in (None, f"{database}.{table}"):
            raise Unfit(
                f"{place.name} has the rows of {memory.table}, so those of {database}.{table} need their own "
                "place: see the options database, table and index"
            )
        if memory.epoch > self._options.epoch:
            raise Unfit(
                f"{place.name} was written with the option epoch: {memory.epoch}, but it is "
                f"{self._options.epoch} here: new changes would lose against all existing rows. Set it to "
                "its highest value so far, in all workers"
            )
        last = 0 if memory.number else self._dialect.last_version(place)
        if last and last - 1 >> EPOCH_BITS >= self._options.epoch:
            raise Unfit(
                f"{place.name} has rows with versions, but not the topics they came from (was it copied "
                "without its memory?): new changes might lose against them. Copy the memory, too (the "
                "handler's page says where it is); or let new changes win: option epoch: "
                f"{(last - 1 >> EPOCH_BITS) + 1}"
            )
        return place

    def _make(
        self, named: ddl.TableName, columns: Mapping[str, Any], key: Sequence[str], memory: Memory
    ) -> None:
        name = self._dialect.name_of(*named)
        if not self._options.create:
            raise Unfit(f"{name} for {named} does not exist, and create is false: create it")
        self._dialect.make(named, columns, key, memory)
        log.info("target_table_made", target=name, table=str(named))

    # ---- statements

    def _tell_left(self, change: Change, batch: Batch) -> None:
        """Log the parts of an ALTER that are not applied to the target."""
        if change.op != "ddl" or "alter" not in (change.sql or "").casefold():
            return
        operations = operations_of(change, ddl.TableName(batch.database, batch.name))
        left = sorted({_LEFT[type(one)] for one in operations if type(one) in _LEFT})
        if left:
            self._log.warning("ddl_refused", table=batch.table, because="; ".join(left))

    def _empty(self, named: ddl.TableName, change: Change, batch: Batch) -> None:
        ready = self._ready(named, batch, ())
        if ready is None:
            return
        place, versions, _ = ready
        try:
            version = versions.of(change)
        except BeyondVersions as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}") from None
        removed = self._dialect.empty(
            place, version=version, partition=partition_of(batch, change), time=change.source_time_ms
        )
        self._log.info("target_rows_removed", table=str(named), target=place.name, rows=removed)


class VersionedHandler(Handler):
    """Base of handlers that may write a batch twice: a row's highest version wins."""

    options_model: ClassVar[type[VersionedOptions]]
    dialect: ClassVar[Any]
    """A Dialect class; its arguments are the options and a HandlerContext. It connects on first use, so a
    worker can start while the target is down. Raises OSError if a certificate cannot be read."""

    def __init__(self, **options: Any) -> None:
        self._options = self.options_model.model_validate(options)
        self._dialect: Dialect[Any] | None = None
        self._target: VersionedTarget[Any] | None = None

    def open(self, context: HandlerContext) -> None:
        """Create the dialect. Raises as `dialect` does."""
        made: Dialect[Any] = self.dialect(self._options, context)
        self._dialect, self._target = made, VersionedTarget(made, self._options, context)

    def handle(self, batch: Batch) -> None:
        """Write a batch. Raises as VersionedTarget.handle does."""
        assert self._target is not None, "handle needs open"
        self._target.handle(batch)

    def close(self) -> None:
        if self._dialect is not None:
            self._dialect.close()
        self._dialect = self._target = None

    def check(self, context: HandlerContext) -> None:
        """Check the target. Raises as `dialect` and its `check` do."""
        with closing(self.dialect(self._options, context)) as dialect:
            dialect.check()
