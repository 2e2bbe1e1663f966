"""Follow DDL of the source in the target: check, apply and record each operation. `tables`, `columns` and
`retyping` run its SQL.

MySQL and MariaDB commit at each DDL statement, so after a crash a statement may be repeated although some of
its steps are done. There each step is recorded before it begins. A repeated statement continues from that
step, and a step first checks whether it is done already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from handlers.api import Change, Rejected
from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.ddl.rules import DDLRules, Reach, names_of
from handlers.mysql.ddl.values import warn_of_generated
from handlers.mysql.statement_of_change import operations_of, shown
from handlers.sql.ddl.columns import add_column, drop_column, modify_column, rename_column
from handlers.sql.ddl.tables import change_key, create_table, drop_table, rename_table, truncate_table
from handlers.sql.ddl.target import Target, TargetTable
from handlers.sql.ddl.versions import check_columns, give_name, in_history, note_dropped
from handlers.sql.kept_tables import Kept, Statement
from handlers.sql.naming import Naming

log = get_logger("handlers.sql")


@dataclass(frozen=True, slots=True)
class DDLResult:
    targets: tuple[TargetTable, ...]
    """(schema or None, table) of each target table that the statement names, under its old and its new name.
    The caller drops them from its cache."""
    done: tuple[str, ...]
    """The statements that ran in the target."""


def apply(
    kept: Kept,
    change: Change,
    rules: DDLRules,
    naming: Naming,
    *,
    own: ddl.TableName,
    handles: Callable[[str], bool],
    replay_of: tuple[str, int, int] | None = None,
) -> DDLResult:
    """Do in the target what a change with op `ddl` or `truncate` did in the source.

    Uses the transaction of `kept`, if the target's DDL is transactional (not in MySQL and MariaDB). Skips
    operations that `rules` switch off, that are done already, or that the handler may not apply. `own` is the
    table of the change's record. `replay_of` is described at Batch and `handles` at HandlerContext. Raises
    Rejected if the statement cannot be read or would change a table that the handler needs for itself.
    Raises SQLAlchemy's errors."""
    operations = operations_of(change, own)
    target = Target(kept, naming, change.source_time_ms, done=[], end=kept.period and kept.period[1])
    if kept.period is not None and rules.drop_tables == "made":  # DROP TABLE only ends versions
        rules = rules.model_copy(update={"drop_tables": True})
    statement = Statement.of(change, replay_of)
    commits_each = target.family == "mysql"
    begun = kept.step_of(own, statement) if commits_each else None
    reach = Reach(handles, kept.keeps, kept.made)
    _check(target, operations, rules, reach, own)
    ours = {own}
    targets: dict[TargetTable, None] = {}
    for step, found in enumerate(operations):
        operation = found
        if not isinstance(found, ddl.DropTable):  # only its own name may be dropped, never one that is found
            operation = replace(found, table=target.named(found.table, own))
        if isinstance(operation, ddl.CreateTable) and operation.like is not None:
            operation = replace(operation, like=target.named(operation.like, own))
        if begun is None or step >= begun:
            if switch := rules.switch_off(operation):
                log.info("ddl_switched_off", table=str(own), switch=switch, sql=shown(change.sql))
                if isinstance(operation, ddl.DropColumn):
                    note_dropped(target, operation.table, operation.name)
                continue
            refusal = reach.refusal(operation, ours, rules)
            if refusal:
                log.warning("ddl_refused", table=str(own), because=refusal, sql=shown(change.sql))
                continue
            if commits_each:
                kept.begin_step(own, statement, step)
                target.is_again = step == begun
            targets.update(dict.fromkeys(_follow(target, operation, change)))
        if isinstance(operation, ddl.RenameTable):
            ours = (ours - {operation.table}) | {operation.to}
            targets.update(dict.fromkeys((target.table(operation.table), target.table(operation.to))))
    if commits_each:
        kept.end_steps(own, statement)
    if target.done:
        log.info("ddl_followed", table=str(own), sql=shown(change.sql), statements=target.done)
    return DDLResult(tuple(targets), tuple(target.done))


def _check(
    target: Target, operations: list[ddl.Operation], rules: DDLRules, reach: Reach, own: ddl.TableName
) -> None:
    """Raise Rejected if the statement would change a table that the handler needs for itself. This runs
    before any of its operations."""
    for operation in operations:
        if rules.switch_off(operation):
            continue
        for name in names_of(operation):
            if name == own or reach.handles(str(name)):
                target.table(name)
                if target.kept.period is not None:
                    check_columns(operation, target.kept.period)


def _follow(target: Target, operation: ddl.Operation, change: Change) -> list[TargetTable]:
    table = target.table(operation.table)
    owners = target.kept.owners(target.naming)
    columns, period = target.columns(table), target.kept.period
    why_not = owners.claim(operation.table, columns) if columns else ""
    if why_not and not (
        isinstance(operation, ddl.RenameTable) and owners.are_one(operation.table, operation.to)
    ):
        raise Rejected(f"{operation.table}: {why_not}")
    if period is not None and (told := in_history(target, operation, period)):
        log.info("ddl_history_kept", table=str(operation.table), because=told, sql=shown(change.sql))
        return [table]
    match operation:
        case ddl.RenameTable(to=to):
            _rename(target, table, operation.table, to, is_known=bool(why_not))
        case ddl.CreateTable():
            create_table(target, table, operation)
        case ddl.DropTable():
            drop_table(target, table)
            target.kept.note_gone(operation.table)
            owners.note_gone(operation.table)
        case ddl.TruncateTable():
            truncate_table(target, table, change)
        case ddl.AddColumn(column=ddl.Column(name=name)) | ddl.RenameColumn(to=name):
            give_name(target, operation.table, name)
            _follow_columns(target, table, operation)
        case _:
            _follow_columns(target, table, operation)
    return [table]


def _rename(
    target: Target, table: TargetTable, source: ddl.TableName, to: ddl.TableName, *, is_known: bool
) -> None:
    """Rename the table and move its notes. `is_known`: they say already that its table belongs to `to`."""
    kept, owners = target.kept, target.kept.owners(target.naming)
    has_notes = kept.noted(source) is not None or bool(kept.dropped(source))
    if table == target.table(to):  # only the notes of the source table move, unless they have
        if has_notes:
            kept.note_moved(source, to)
        return
    # If they are one, its table has the new name already.
    is_one = owners.are_one(source, to)
    is_moved = not is_known if is_one else rename_table(target, table, target.table(to))
    # Or an interrupted worker has moved it. A repeated finished statement does not count.
    if is_moved or (target.is_again and has_notes):
        kept.note_moved(source, to)
        owners.note_moved(source, to)


def _follow_columns(target: Target, table: TargetTable, operation: ddl.Operation) -> None:
    match operation:
        case _ if not target.exists(table):
            # Its first row creates it with its columns of that time.
            log.info("ddl_of_a_table_that_is_not_there", table=table.name)
        case ddl.AddColumn(column=column):
            add_column(target, table, column, is_made=target.kept.made(operation.table))
            warn_of_generated(log, table.name, column)
        case ddl.DropColumn(name=name):
            drop_column(target, table, name)
        case ddl.RenameColumn(name=name, to=new_name):
            rename_column(target, table, name, new_name)
        case ddl.ModifyColumn(column=column):
            modify_column(target, table, column)
            warn_of_generated(log, table.name, column)
        case ddl.ChangeKey(columns=columns):
            change_key(target, table, columns)
        case ddl.LoseRows(clause=clause):
            log.warning("ddl_rows_not_followed", table=table.name, clause=clause)
