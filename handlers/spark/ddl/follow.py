"""Applies one statement of the source to Delta tables, step by step.

A Delta commit is atomic, but a statement may need several, and a crash repeats the statement. Each commit
records its statement and step in its user metadata. A later attempt finds the finished steps in the table's
history. The steps of a failed statement are also saved, because it may be repeated much later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from pyspark.sql import SparkSession

from handlers.api import Change
from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.ddl.rules import DDLRules, Reach
from handlers.mysql.ddl.values import warn_of_generated
from handlers.mysql.statement_of_change import operations_of, shown
from handlers.spark.ddl.columns import add_columns, drop_columns, dropped_columns, rename_column
from handlers.spark.ddl.progress import KeptSteps, Surroundings
from handlers.spark.ddl.rewriting import check_values, modify_columns
from handlers.spark.ddl.tables import create_table, drop_table, may_drop, rename_table, truncate_table
from handlers.spark.ddl.target import Target
from handlers.spark.table_ref import find

log = get_logger("handlers.spark")

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DDLResult:
    """The effect of a statement."""

    touched: tuple[ddl.TableName, ...]
    """The source tables that the statement concerns, under their old and new names. Forget what was known of
    their Delta tables."""
    done: tuple[str, ...]
    """The statements and other actions executed in this attempt."""
    key: Key | None
    """The key columns of the change's own table afterwards. Empty without a key, None if unknown."""


def follow(
    sessions: Callable[[], SparkSession],
    change: Change,
    around: Surroundings,
    own: ddl.TableName,
    *,
    note: str,
    key: Key | None = None,
    topics: Sequence[str] = (),
    fence: str = "",
    look_again: Callable[[], None] = lambda: None,
) -> DDLResult:
    """Apply a change with op `ddl` or `truncate` to the Delta tables.

    All earlier changes of `own`, the table of the change's record, are merged. `sessions`: see Target. The
    session belongs to the caller: its confs are set and restored. `key`: the table's key columns, if known.
    `topics`: the topic's name in records of finished steps, if not its own, then names that an earlier
    attempt may have used. `fence`, `look_again`: see Target. Skips what the handler's rules switch off or an
    earlier attempt did.

    Raises Rejected, before any change, for a statement that cannot be parsed or whose new type does not fit
    the values. Also raises Rejected if a table's folder contains other files, and what Spark and the store
    raise. May be called again after any error."""
    rules = around.options.ddl
    statement = operations_of(change, own)
    topics = topics or (change.topic,)
    places = [(topic, change.partition, change.offset, change.index) for topic in topics]
    kept = KeptSteps(around.files, around.root, places, own, change)
    target = Target(
        sessions=sessions,
        around=around,
        places=places,
        time_ms=change.source_time_ms,
        note=note,
        most_commits=20 + 3 * len(statement),
        fence=fence,
        look_again=look_again,
        keeps_dropped=around.options.mode == "history" or not rules.drop_columns,
        kept=kept.look(),
    )
    work = _Work(target, {} if key is None else {own: key})
    try:
        _check(target, statement, rules, own)
        _follow(work, statement, change, rules, own)
    except Exception:
        kept.keep(target.committed)
        raise
    if target.done:
        log.info("ddl_followed", table=".".join(own), sql=shown(change.sql), statements=target.done)
    return DDLResult(tuple(work.touched), tuple(target.done), work.keys.get(own))


def _follow(
    work: _Work, statement: list[ddl.Operation], change: Change, rules: DDLRules, own: ddl.TableName
) -> None:
    """Apply those operations that the rules allow."""
    target, around = work.target, work.target.around
    ours = {own}
    for step, operations in enumerate(_groups(statement)):
        reach = Reach(around.handles, target.keeps, partial(may_drop, target, step=f"{step}"))
        first = operations[0]
        if not isinstance(first, ddl.DropTable):  # as in handlers.sql.ddl.following
            first = replace(first, table=target.named(first.table))
        if isinstance(first, ddl.CreateTable) and first.like is not None:
            first = replace(first, like=target.named(first.like))
        if switch := rules.switch_off(first):
            log.info("ddl_switched_off", table=str(own), switch=switch, sql=shown(change.sql))
            if not isinstance(first, ddl.DropColumn):
                continue  # but record a kept column: the source may add another of its name
        refusal = reach.refusal(first, ours, rules)
        if refusal:
            log.warning("ddl_refused", table=str(own), because=refusal, sql=shown(change.sql))
            continue
        if isinstance(first, ddl.RenameTable):
            ours = (ours - {first.table}) | {first.to}
        work.follow(f"{step}", operations)


def _groups(operations: list[ddl.Operation]) -> Iterator[list[ddl.Operation]]:
    """Group operations that one commit can apply: columns that one statement adds, drops or retypes."""
    together = (ddl.AddColumn, ddl.DropColumn, ddl.ModifyColumn)
    for (kind, _), group in groupby(operations, lambda one: (type(one), one.table)):
        if kind in together:
            yield list(group)
        else:
            yield from ([one] for one in group)


def _check(target: Target, statement: list[ddl.Operation], rules: DDLRules, own: ddl.TableName) -> None:
    """Raise Rejected if a column cannot get its new type, before any other clause is applied."""
    retyped = [one for one in statement if isinstance(one, ddl.ModifyColumn) and rules.retype_columns]
    is_adding = target.is_history and rules.add_columns
    added = [one for one in statement if isinstance(one, ddl.AddColumn) and is_adding]
    changed: Sequence[ddl.ModifyColumn | ddl.AddColumn] = (*retyped, *added)
    if not changed:
        return
    moved = [one.table for one in statement if isinstance(one, ddl.RenameTable)]
    table = target.named(moved[0] if moved and rules.rename_tables else changed[0].table)
    reach, ref = Reach(target.around.handles, target.keeps, lambda _: False), target.ref(table)
    if reach.refusal(replace(changed[0], table=table), {own}, rules):
        return
    if not target.exists(ref) or target.steps(ref):
        return  # or some steps are done, so it was checked
    dropped = [one.name for one in statement if isinstance(one, ddl.DropColumn)]
    if added:  # in a history, a column that was dropped is there, and gets the new type
        gone = [*dropped, *dropped_columns(target, ref)]
        retyped += [ddl.ModifyColumn(table, one.column) for one in added if find(gone, one.column.name)]
    if not retyped:
        return
    names: dict[str, str] = {}
    for one in statement:
        if isinstance(one, ddl.RenameColumn) and rules.rename_columns:
            names[one.to.casefold()] = names.pop(one.name.casefold(), one.name)
    check_values(target, table, retyped, names, dropped=() if target.keeps_dropped else dropped)


@dataclass(eq=False, slots=True)
class _Work:
    """The tables that a statement has changed so far."""

    target: Target
    keys: dict[ddl.TableName, Key]
    touched: dict[ddl.TableName, None] = field(default_factory=dict)

    def follow(self, step: str, operations: list[ddl.Operation]) -> None:
        """Apply the operations of one group."""
        target, first = self.target, operations[0]
        name = target.named(first.table)
        self.touched[name] = None
        match first:
            case ddl.RenameTable(to=to):
                self.touched[to] = None
                if rename_table(target, name, to, step):
                    key = self.keys.pop(name, None)
                    self.keys.pop(to, None)
                    if key is not None:
                        self.keys[to] = key
            case ddl.CreateTable():
                if create_table(target, name, first, step) and first.columns:
                    self.keys[name] = first.key
            case ddl.DropTable():
                drop_table(target, name, step)
                self.keys.pop(name, None)
            case ddl.TruncateTable():
                truncate_table(target, target.ref(name), step)
            case ddl.ChangeKey(columns=columns):
                self.keys[name] = columns
            case ddl.LoseRows(clause=clause):
                log.warning("ddl_rows_not_followed", table=".".join(name), clause=clause)
            case _ if not target.exists(target.ref(name)):
                # Its first row creates the table, with the columns of that time.
                log.info("ddl_of_a_table_that_is_not_there", table=".".join(name))
            case _:
                self._columns(name, step, operations)

    def _columns(self, name: ddl.TableName, step: str, operations: list[ddl.Operation]) -> None:
        target, key = self.target, self.keys.get(name)
        for one in operations:
            if isinstance(one, ddl.AddColumn | ddl.ModifyColumn):
                warn_of_generated(log, str(name), one.column)
        match operations[0]:
            case ddl.RenameColumn(name=old, to=new):
                if rename_column(target, target.ref(name), old, new, step) and key is not None:
                    renamed = {old.casefold(): new}
                    self.keys[name] = tuple(renamed.get(one.casefold(), one) for one in key)
            case ddl.DropColumn():
                dropped = [one.name for one in operations if isinstance(one, ddl.DropColumn)]
                drop_columns(target, target.ref(name), dropped, step)
                if key is not None:
                    self.keys[name] = tuple(one for one in key if find(dropped, one) is None)
            case ddl.ModifyColumn():
                retyped = [one for one in operations if isinstance(one, ddl.ModifyColumn)]
                modify_columns(target, name, retyped, step)
            case ddl.AddColumn():
                added = [one for one in operations if isinstance(one, ddl.AddColumn)]
                add_columns(target, name, added, step, key=key)
