"""What DDL of the source does in a history, where it differs from a replica: versions are never removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from handlers.api import Rejected
from handlers.mysql import ddl
from handlers.mysql.ddl.rules import free_name
from handlers.sql.ddl.columns import rename_column
from handlers.sql.ddl.tables import rename_table
from handlers.sql.ddl.target import Target, TargetTable
from handlers.sql.own_tables import Owners

TAKEN = "a column of the source has the name of {} or {}: set other names"
_EPOCH = datetime(1970, 1, 1)


def in_history(target: Target, operation: ddl.Operation, period: tuple[str, str]) -> str:
    """Do what the statement does in a history. Returns why nothing else is done; empty: it is followed as in
    a replica. Raises Rejected."""
    table, kept, source = target.table(operation.table), target.kept, operation.table
    owners = kept.owners(target.naming)
    left = set(target.columns(table)).difference(period)
    is_gone = bool(left) and left <= kept.dropped(source)
    if is_gone and _has_current(target, table, period):  # it was created by a statement that is not known
        current = f"{target.quote(period[1])} IS NULL"
        values = {one: f"{target.quote(one)} IS NOT NULL" for one in left}
        has_value = {one for one in left if target.any_row(table, f"{current} AND {values[one]}")}
        kept.note_dropped(source, left - has_value)
        is_gone = False
    match operation:
        case ddl.CreateTable(columns=columns, like=like):
            if is_gone:  # otherwise IF NOT EXISTS did nothing
                names = {one.name.casefold() for one in columns}
                if like is not None:
                    names = {one.casefold() for one in target.columns(target.table(like))}
                    names -= {one.casefold() for one in kept.dropped(like)}
                kept.note_dropped(source, [one for one in left if one.casefold() not in names])
            return "its first row creates it"
        case ddl.ChangeKey():
            return "later rows are found by the new key"
        case ddl.DropColumn(name=name):
            note_dropped(target, source, name)
            return "the column keeps its values, and is NULL in new versions"
        case ddl.TruncateTable() | ddl.DropTable():
            if target.exists(table):
                _end_all(target, table, period)
                if isinstance(operation, ddl.DropTable):
                    kept.note_dropped(source, left)
            return "its versions have ended"
        case ddl.RenameTable(to=to) if target.exists(table) and not owners.are_one(source, to):
            _set_aside(target, owners, to, period)
        case ddl.RenameColumn(name=name, to=new) if (old := target.column(table, name)) is not None:
            taken = target.column(table, new)
            if taken != old:  # the source has dropped it
                kept.note_dropped(source, kept.dropped(source).union(set_column_aside(target, table, taken)))
    return ""


def check_columns(operation: ddl.Operation, period: tuple[str, str]) -> None:
    """Raise Rejected if the statement would change a column of the history, which the source cannot mean."""
    match operation:
        case ddl.AddColumn(column=column) | ddl.ModifyColumn(column=column):
            named = {column.name.casefold()}
        case ddl.RenameColumn(name=name, to=new):
            named = {name.casefold(), new.casefold()}
        case _:
            return
    if not named.isdisjoint(map(str.casefold, period)):
        raise Rejected(f"{operation.table}: {TAKEN.format(*period)}")


def note_dropped(target: Target, source: ddl.TableName, name: str) -> None:
    """Note that the source has dropped a column, which the target keeps."""
    column = target.column(target.table(source), name)
    if column is not None:
        target.kept.note_dropped(source, {*target.kept.dropped(source), column})


def give_name(target: Target, source: ddl.TableName, name: str) -> None:
    """Set a column aside that the source has dropped, because it gives its name to another one."""
    dropped, table = target.kept.dropped(source), target.table(source)
    others = {one for one in dropped if one.casefold() != name.casefold()}
    if others != dropped:
        column = target.column(table, name)
        others |= set(set_column_aside(target, table, column if column in dropped else None))
        target.kept.note_dropped(source, others)  # MariaDB: if it stops before this, it comes here again


def set_column_aside(target: Target, table: TargetTable, name: str | None) -> Sequence[str]:
    """Rename a column that the source has dropped: another column gets its name. Returns the new name."""
    if name is None:
        return ()
    columns = {one.casefold() for one in target.columns(table)}
    free = free_name(name, lambda one: one.casefold() in columns)
    rename_column(target, table, name, free)
    return (free,)


def _end_all(target: Target, table: TargetTable, period: tuple[str, str]) -> None:
    """End the versions that are valid now, none before its start."""
    columns = target.columns(table)
    start, end = map(target.quote, period)
    time = _EPOCH + timedelta(milliseconds=target.time_ms)
    target.set_all(table, end, time, columns[period[1]], f" WHERE {end} IS NULL")
    sets = ", ".join([f"{end} = {start}", *target.unchanged(table)])
    target.run(f"UPDATE {target.ref(table)} SET {sets} WHERE {end} < {start}")


def _set_aside(target: Target, owners: Owners, source: ddl.TableName, period: tuple[str, str]) -> None:
    """Rename the history of a table that the source has dropped: another table gets its name."""
    table = target.table(source)
    columns = target.columns(table)
    if columns and not owners.claim(source, columns) and not _has_current(target, table, period):
        free = free_name(table.name, lambda one: target.exists(table._replace(name=one)))
        aside = table._replace(name=free)
        owners.note_aside(source, aside)
        rename_table(target, table, aside)


def _has_current(target: Target, table: TargetTable, period: tuple[str, str]) -> bool:
    is_history = period[1] in target.columns(table)
    return is_history and target.any_row(table, f"{target.quote(period[1])} IS NULL")
