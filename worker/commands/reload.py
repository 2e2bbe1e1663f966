"""`binlane reload`: rebuild one table from its topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from handlers import Batch, Change, HandlerContext, PartialFailure, Rejected, TargetUnavailable
from handlers.progress import Place
from handlers.reloading import Behind, Differs, Hindered, Refused, TableReload
from handlers.sql.handler import DatabaseError
from worker.commands.output import begin
from worker.configuration import Configuration, HandlerEntry
from worker.kafka.connection import ReadFault
from worker.reloading.source_changes import ChangesOf, Unfollowable, WholeTopics

_PATIENCE_SECONDS = 30.0
_BUSY_SECONDS = 600.0
"""For a topic that never becomes idle."""
_PAUSE_SECONDS = 0.2

_WHY_NOT = {
    "kafka": "it sends records, and would send all of them again",
    "webhook": "it sends requests, and would send all of them again",
    "log": "it stores nothing",
}
_FAULTS = (Refused, Unfollowable, ReadFault, Rejected, TargetUnavailable, DatabaseError, PartialFailure)


@dataclass(frozen=True, slots=True)
class _Reloaded:
    """The result of a reload."""

    changes: int
    before: int
    after: int
    undecodable: int
    """Records that were skipped, as on_undecodable says."""


def reload(config: Path, table: str, handler: str | None = None, *, alone: bool = False) -> int:
    """Rebuild the target's table from the beginning of its topic, then replace the old table. `alone`: no
    worker writes it meanwhile.

    Returns 0, or 1 if it failed: then the table is unchanged. Raises ConfigurationError."""
    configuration, output = begin("reload", config, level="warning")

    def tell_now(text: str) -> None:
        output.say(f"{table}: {text}")

    def tell(text: str) -> None:
        output.say_now_and_then(f"{table}: {text}")

    try:
        entry = _chosen(configuration, table, handler)
    except LookupError as fault:
        return output.failed(fault)
    try:
        done = _reload(configuration, table, entry, tell, tell_now, is_alone=alone)
    except _FAULTS as fault:
        return output.failed(f"{table}: {fault}")
    if done.undecodable:
        tell_now(f"{done.undecodable:,} records that cannot be decoded were skipped (on_undecodable)")
    print(f"{table}: {done.before:,} rows replaced by {done.after:,}, from {done.changes:,} changes")
    return 0


def _chosen(configuration: Configuration, table: str, handler: str | None) -> HandlerEntry:
    """Find the handler whose table is reloaded. Raises LookupError."""
    rule = configuration.rule_for(table)
    if rule is None:
        raise LookupError(f"no rule of tables: matches {table}")
    entries = [entry for entry in rule.handlers if handler in (None, entry.name)]
    names = ", ".join(entry.name for entry in rule.handlers)
    if not entries:
        raise LookupError(f"{table} has no handler {handler}; it has {names}")
    if len(entries) > 1:
        raise LookupError(f"{table} has several handlers: choose one with --handler: {names}")
    entry = entries[0]
    if entry.type not in ("sql", "spark"):
        why = _WHY_NOT.get(entry.type, "only handlers of type sql and spark can reload tables")
        raise LookupError(f"handler {entry.name} is of type {entry.type}: {why}")
    if configuration.kafka.ddl_topics:
        raise LookupError("a table cannot be reloaded with kafka.ddl_topics: its topics are read merged")
    return entry


def _reload(
    configuration: Configuration,
    table: str,
    entry: HandlerEntry,
    tell: Callable[[str], None],
    say: Callable[[str], None],
    *,
    is_alone: bool = False,
) -> _Reloaded:
    """Build the table from the topics that its marks name, then replace the old table. `is_alone`: no worker
    writes it meanwhile.

    `tell` receives the progress regularly; `say` the current step, or what is left. Raises _FAULTS. Then
    the table is unchanged, but if the connection was lost at the commit, it may already be complete."""
    target = _target(entry, configuration.context_for(entry), table, say, is_alone=is_alone)
    try:
        target.begin()
        topics = sorted({topic for topic, _ in target.marks() if topic})
        if not topics:
            raise Refused(f"no change of {table} was applied yet")
        say(f"reading {', '.join(topics)} from the beginning")
        with closing(WholeTopics(configuration, topics)) as read:
            return _Run(configuration, table, target, read, tell).run()
    finally:
        if left := target.end():
            say(left)


def _target(
    entry: HandlerEntry, context: HandlerContext, table: str, say: Callable[[str], None], *, is_alone: bool
) -> TableReload:
    database, _, name = table.partition(".")
    # Imported here because each may be missing, and its import is slow.
    if entry.type == "spark":
        from handlers.spark.reloading.reload import SparkReload  # noqa: PLC0415 (see above)

        return SparkReload(entry.options, context, database, name, say=say, is_alone=is_alone)
    from handlers.sql.reloading.reload import SqlReload  # noqa: PLC0415 (see above)

    return SqlReload(entry.options, context, database, name)


@dataclass(eq=False)
class _Run:
    configuration: Configuration
    table: str
    target: TableReload
    read: WholeTopics
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        rule = self.configuration.rule_for(self.table)
        assert rule is not None
        self._database, _, self._name = self.table.partition(".")
        self._changes = ChangesOf(self.configuration, rule, self._database, self._name)
        self._waiting: list[Change] = []
        self._seen: set[tuple[str, int]] = set()
        self._has_statements = False
        self._count = 0

    def run(self) -> _Reloaded:
        until = time.monotonic() + _PATIENCE_SECONDS
        busy_until = time.monotonic() + _BUSY_SECONDS
        while True:
            stood = dict(self.read.next)
            self._to_the_end()
            if self.read.next != stood:
                until = time.monotonic() + _PATIENCE_SECONDS
            try:
                taken = self.target.take_over(self.read.next, self._catch_up)
                return _Reloaded(self._count, taken.before, taken.after, self._changes.undecodable)
            except Behind:
                if time.monotonic() > until:
                    raise Refused(
                        "its marks are beyond the end of its topics: it read others, or they were recreated"
                    ) from None
                if self.read.next != stood:
                    continue  # at once, because a worker is fast
            except (Differs, Hindered) as fault:
                # The worker has not read as far as this run, or there was a deadlock with it, or many writes.
                now = time.monotonic()
                if now > until or (isinstance(fault, Hindered) and now > busy_until):
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _to_the_end(self, marks: Mapping[tuple[str, int], Place] | None = None) -> None:
        """Read to the end, or to a statement that no worker has applied to the table yet. `marks`: the
        table's, if they are fixed."""
        with closing(self.read.records()) as records:
            for record in records:
                for changes in self._changes.of(record):
                    self._seen.add((changes[0].topic, changes[0].partition))
                    if any(change.op in ("ddl", "truncate") for change in changes):
                        self._has_statements = True
                        self._refuse_scattered()
                        last, known = changes[-1], self.target.marks() if marks is None else marks
                        mark = known.get((last.topic, last.partition))
                        if mark is None or mark < (last.offset, last.index):
                            self._apply()
                            return
                        self._apply()
                        self._waiting.extend(changes)
                        self._apply()
                        continue
                    self._refuse_scattered()
                    self._waiting.extend(changes)
                if len(self._waiting) >= self.target.at_once:
                    self._apply()
        self._apply()

    def _catch_up(self, marks: Mapping[tuple[str, int], Place]) -> Mapping[tuple[str, int], int]:
        self._to_the_end(marks)
        return self.read.next

    def _refuse_scattered(self) -> None:
        if self._has_statements and len(self._seen) > 1:
            raise Unfollowable(
                "its changes come from several partitions, with DDL or TRUNCATE among them: the topic does "
                "not show in which order these were applied"
            )

    def _apply(self) -> None:
        if not self._waiting:
            return
        changes: Sequence[Change] = tuple(self._waiting)
        self._waiting = []
        self.target.apply(
            Batch(
                self.table, changes, database=self._database, name=self._name, topic_ids=self.read.topic_ids
            )
        )
        self._count += len(changes)
        self.tell(f"{self._count:,} changes applied")
