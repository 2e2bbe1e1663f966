"""What DDL of the source does in a history, where it differs from a replica: versions are never removed."""

from __future__ import annotations

from datetime import datetime, timedelta

from handlers.mysql import ddl
from handlers.sql.ddl.target import Target, TargetTable

_EPOCH = datetime(1970, 1, 1)


def in_history(target: Target, operation: ddl.Operation, period: tuple[str, str]) -> str:
    """Do what the statement does in a history. Returns why nothing else is done; empty: it is followed as in
    a replica."""
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
    return ""


def _end_all(target: Target, table: TargetTable, period: tuple[str, str]) -> None:
    """End the versions that are valid now, none before its start."""
    names = [target.column(table, name) for name in period]
    start, end = (target.quote(name) for name in names if name is not None)
    type_ = target.columns(table)[names[1] or ""]
    time = _EPOCH + timedelta(milliseconds=target.time_ms)
    target.set_all(table, end, time, type_, f" WHERE {end} IS NULL")
    sets = ", ".join([f"{end} = {start}", *target.unchanged(table)])
    target.run(f"UPDATE {target.ref(table)} SET {sets} WHERE {end} < {start}")
