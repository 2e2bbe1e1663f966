"""Applies log entries that are not rows to their table: DDL, truncates, and reloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache

from pyspark.sql import SparkSession

from handlers.api import Change, Rejected
from handlers.mysql.ddl import StatementError, TableName, parse
from handlers.options.templates import place_of
from handlers.spark.ddl.follow import DDLResult, follow
from handlers.spark.ddl.progress import Surroundings
from handlers.spark.ddl.rewriting import replace_rows
from handlers.spark.ddl.target import Target
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import MergeConflict, is_conflict
from handlers.spark.engine.table.failures import LogFailure, SparkFailure, cannot_follow, explained
from handlers.spark.engine.table.world import World
from handlers.spark.log.segment_file import REPLACE, Statement
from handlers.spark.runtime.start import SparkStarts
from handlers.spark.table_ref import TableRef


class Following:
    """For one table. The caller ensures that one thing is done at a time."""

    def __init__(self, database: str, table: str, ref: TableRef, world: World) -> None:
        self._own = TableName(database, table)
        self._ref = ref
        self._world = world

    def concerns(self, change: Change) -> bool:
        """Whether a statement may change tables, columns or rows. An index or a comment does not."""
        if change.op == "truncate":
            return True
        try:
            return bool(parse(change.sql or "", self._own.database))
        except StatementError:
            return True  # `follow` reports it

    def follow_entry(self, statement: Statement, look_again: Callable[[], None] = lambda: None) -> None:
        """Follow a statement of the log after everything before it is merged. If another worker has followed
        it, `look_again` (see Target) raises MergeConflict.

        Raises LogFailure, MergeConflict, and what Spark raises."""
        try:
            with ExitStack() as stack:
                sessions = self._sessions(stack, self._world.spark.slots)
                if statement.op == REPLACE:
                    self._replace(statement, sessions, look_again)
                else:
                    key, topics = statement.key_before, statement.topics
                    self._follow(statement.change, sessions, key, topics, look_again)
        except (MergeConflict, SparkStarts):
            raise
        except Exception as error:
            if is_conflict(error):
                raise MergeConflict(f"{self._ref}: another worker is applying the same statement") from error
            own, is_reload = str(self._own), statement.op == REPLACE
            where = f"{own}, loaded again" if is_reload else place_of(statement.change, own)
            told = explained(error, where, self._world.spark)
            # It is no fault of the next batch's rows. A Rejected or SparkFailure gets advice on what to do.
            if isinstance(told, Rejected | SparkFailure) and not isinstance(told, LogFailure):
                told = cannot_follow(statement, where, told)
            raise told from error

    def follow(
        self,
        change: Change,
        key: tuple[str, ...] | None,
        topics: Sequence[str],
        look_again: Callable[[], None],
    ) -> DDLResult:
        """Follow a `ddl` or `truncate` change when no row of this table waits. `topics`: the topic's names in
        records of finished steps (`Marks.names`). `look_again`: see Target.

        Raises Rejected, MergeConflict, and what `look_again` and Spark raise."""
        with ExitStack() as stack:  # without a slot: settling another table takes one
            return self._follow(change, self._sessions(stack), key, topics, look_again)

    def _sessions(
        self, stack: ExitStack, slot: AbstractContextManager[None] | None = None
    ) -> Callable[[], SparkSession]:
        """Return what opens this thread's session, with the slot, when it is first called."""

        @cache
        def opened() -> SparkSession:
            session = stack.enter_context(self._world.session())
            if slot is not None:
                stack.enter_context(slot)
            return session

        return opened

    def _follow(
        self,
        change: Change,
        sessions: Callable[[], SparkSession],
        key: tuple[str, ...] | None,
        topics: Sequence[str],
        look_again: Callable[[], None],
    ) -> DDLResult:
        """See handlers.spark.ddl.target for `look_again`."""
        return follow(
            sessions,
            change,
            self._around(),
            self._own,
            note=self.note(change.source_time_ms).to_json(),
            key=key,
            topics=topics,
            fence=self._fence(change, topics),
            look_again=look_again,
        )

    def _replace(
        self,
        statement: Statement,
        sessions: Callable[[], SparkSession],
        look_again: Callable[[], None],
    ) -> None:
        world = self._world
        target = Target(
            sessions=sessions,
            around=self._around(),
            places=[(statement.topics[0], statement.partition, statement.offset, statement.index)],
            time_ms=statement.source_time_ms,
            note=self.note(statement.source_time_ms).to_json(),
            fence=self._fence(statement, statement.topics),
            look_again=look_again,
        )
        replace_rows(target, self._ref, f"{world.locations.root}/{statement.sql}", "rows")

    def _fence(self, of: Change | Statement, topics: Sequence[str]) -> str:
        return f"{self._ref.app_id}#{topics[0]}-{of.partition}-{of.offset}-{of.index}"

    def note(self, source_time_ms: int) -> CommitNote:
        """Return the note of a commit that merges no segment."""
        context = self._world.context
        return CommitNote(context.worker, context.handler, 0, 0, source_time_ms, {})

    def _around(self) -> Surroundings:
        world = self._world
        return Surroundings(
            options=world.options,
            ref_of=lambda name: world.locations.ref_to_write(name.database, name.table),
            files=world.files,
            root=world.locations.logs,
            settle=lambda name: None if name == self._own else world.settle(name),
            leaving=world.leaving,
            databases_of=world.databases_of,
            handles=world.context.handles or (lambda _: True),
            overrides=world.overrides,
            next_version=world.without_spark.next_version,
            create=world.without_spark.create,
        )
