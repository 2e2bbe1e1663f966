"""A record's changes under the rules of their table, and its faults without its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handlers import Change
from worker.column_rules.plan import RuleFault
from worker.formats.interface import Record, UndecodableRecord

if TYPE_CHECKING:
    from worker.column_rules.row_rules import RowRules
    from worker.column_rules.statements import StatementRules

__all__ = ["bring_under", "fault_text", "fault_under"]


def bring_under(
    rows: RowRules | None,
    statements: StatementRules | None,
    changes: list[Change],
    first: int,
    *,
    database: str,
    table: str,
) -> None:
    """Put in the place of the changes from `first` on, those of one record, what handlers may see of them.

    `rows`: the rules of their table; `statements`: of all tables. Raises RuleFault.
    """
    if len(changes) <= first:
        return
    has_ddl = rows is None or rows.apply(changes, first, database, table)
    if has_ddl and statements is not None:
        followed = [
            statements.follow(change, database, table) if change.op == "ddl" else change
            for change in changes[first:]
        ]
        changes[first:] = [change for change in followed if change is not None]


def fault_under(error: Exception, record: Record) -> UndecodableRecord:
    """The fault of a record whose table has column rules. It quotes no value, as a format's own may."""
    place = f"{record.topic()}[{record.partition()}] offset {record.offset()}"
    return UndecodableRecord(f"{fault_text(error)} (at {place})")


def fault_text(error: Exception) -> str:
    """What is wrong with a record of a table with column rules. What a format says of one may quote "
    "values."""
    if isinstance(error, RuleFault):
        return str(error)
    return (
        f"{type(error).__name__}: it cannot be decoded; what exactly is wrong may hold values, which the "
        "table's column rules keep back: see the record with `binlane check --sample`, or as a dead letter"
    )
