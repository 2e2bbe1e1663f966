"""What DDL of the source does in a history, where it differs from a replica: versions are never removed."""

from __future__ import annotations

from datetime import datetime, timedelta

from handlers.api import Rejected
from handlers.mysql import ddl
from handlers.mysql.ddl.rules import free_name
from handlers.sql.ddl.columns import rename_column
from handlers.sql.ddl.tables import rename_table
from handlers.sql.ddl.target import Target, TargetTable

_EPOCH = datetime(1970, 1, 1)


def in_history(target: Target, operation: ddl.Operation, period: tuple[str, str]) -> str:
    """Do what the statement does in a history. Returns why nothing else is done; empty: it is followed as in
    a replica. Raises Rejected."""
    table = target.table(operation.table)
    match operation:
        case ddl.CreateTable():
            return "its first row creates it"
        case ddl.ChangeKey():
            return "later rows are found by the new key"
        case ddl.DropColumn():
            return "the column keeps its values, and is NULL in new versions"
        case ddl.TruncateTable() | ddl.DropTable():
            if target.exists(table):
                _end_all(target, table, period)
            return "its versions have ended"
        case ddl.RenameTable(to=to) if target.exists(table) and table != target.table(to):
            _set_aside(target, target.table(to), period)
        case ddl.RenameColumn(name=name, to=new) if target.column(table, name) is not None:
            taken = target.column(table, new)
            if taken is not None and taken != target.column(table, name):  # the source has dropped it
                set_column_aside(target, table, taken)
    return ""


def set_column_aside(target: Target, table: TargetTable, column: str) -> None:
    """Rename a column that the source has dropped, and the target keeps: another one gets its name."""
    columns = {one.casefold() for one in target.columns(table)}
    rename_column(target, table, column, free_name(column, lambda one: one.casefold() in columns))


def _end_all(target: Target, table: TargetTable, period: tuple[str, str]) -> None:
    """End the versions that are valid now, none before its start."""
    columns = target.columns(table)
    if any(name not in columns for name in period):
        raise Rejected(f"{table.name} has no columns {' and '.join(period)}, so it is no history")
    start, end = map(target.quote, period)
    time = _EPOCH + timedelta(milliseconds=target.time_ms)
    target.set_all(table, end, time, columns[period[1]], f" WHERE {end} IS NULL")
    sets = ", ".join([f"{end} = {start}", *target.unchanged(table)])
    target.run(f"UPDATE {target.ref(table)} SET {sets} WHERE {end} < {start}")


def _set_aside(target: Target, table: TargetTable, period: tuple[str, str]) -> None:
    """Rename the history of a table that the source has dropped: another table gets its name."""
    if period[1] in target.columns(table) and not target.any_row(table, f"{target.quote(period[1])} IS NULL"):
        free = free_name(table.name, lambda one: target.exists(table._replace(name=one)))
        rename_table(target, table, table._replace(name=free))
