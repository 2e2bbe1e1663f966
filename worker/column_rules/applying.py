"""A record's changes under the rules of their table, and its faults without its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handlers import Change
from worker.column_rules.plan import RuleFault, ShownBehind
from worker.formats.decoding import fault_of
from worker.formats.interface import Format, Record, UndecodableRecord

if TYPE_CHECKING:
    from worker.column_rules.row_rules import RowRules
    from worker.column_rules.statements import StatementRules


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


def decode_under(
    format_: Format,
    record: Record,
    into: list[Change],
    rows: RowRules | None,
    statements: StatementRules | None,
    *,
    alone: bool,
) -> None:
    """`format_.decode` of a record whose table has these rules: raises UndecodableRecord and nothing else.

    `alone`: as its route has it. What it says is not yet brought under the rules.
    """
    try:
        format_.decode(record, into)
    except Exception as error:
        raise fault_under(error, record, has_rules(rows, statements, alone=alone)) from error


def has_rules(rows: RowRules | None, statements: StatementRules | None, *, alone: bool) -> bool:
    """Whether a record of the table may hold what rules keep back. `alone`: as its route has it."""
    return rows is not None or (alone and statements is not None)


def fault_under(error: Exception, record: Record, is_ruled: bool) -> UndecodableRecord:
    """What was raised for a record, as its fault. If rules may keep back what it holds, the fault quotes no
    value, as a format's own may."""
    if not is_ruled:
        return fault_of(error, record)
    place = f"{record.topic()}[{record.partition()}] offset {record.offset()}"
    if isinstance(error, RuleFault):
        kind = ShownBehind if isinstance(error, ShownBehind) else UndecodableRecord
        return kind(f"{error} (at {place})")
    return UndecodableRecord(
        f"{type(error).__name__}: it cannot be decoded; what exactly is wrong may hold values, which the "
        "table's column rules keep back: see the record with `binlane check --sample`, or as a dead letter "
        f"(at {place})"
    )
