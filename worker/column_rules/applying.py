"""Application of a table's rules to a record's changes, and error messages without its values.

The rules of all tables are asked for each statement, before anyone sees it (Guarded)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from handlers import Batch, Change
from worker.column_rules.judging import Unmet
from worker.column_rules.plan import RuleFault, ShownBehind
from worker.formats.decoding import fault_of
from worker.formats.interface import (
    Apart,
    Format,
    PlainRoute,
    Record,
    Route,
    Skip,
    UndecodableRecord,
    ValuelessFault,
    passed_on,
)

if TYPE_CHECKING:
    from worker.column_rules.row_rules import RowRules
    from worker.column_rules.statements import StatementRules
    from worker.column_rules.transforms import Transform


def bring_under(
    rows: RowRules | None,
    statements: StatementRules | None,
    changes: list[Change],
    first: int,
    transform: Transform | None = None,
    *,
    database: str,
    table: str,
) -> None:
    """Replace the changes from `first` on, which are of one record, by what handlers may see of them.

    `rows`: the rules of their table. `statements`: the rules of all tables. `transform`: the table's, unless
    a handler's call passes it. Raises RuleFault, and with a transform any of FAULTS."""
    if len(changes) <= first:
        return
    has_ddl = rows is None or rows.apply(changes, first, database, table)
    if has_ddl and statements is not None:
        followed = [
            statements.follow(change, database, table) if change.op == "ddl" else change
            for change in changes[first:]
        ]
        changes[first:] = [change for change in followed if change is not None]
    if transform is not None:
        batch = Batch(f"{database}.{table}", changes[first:], database=database, name=table)
        changes[first:] = transform.applied(batch)[0]


def decode_under(
    format_: Format,
    record: Record,
    into: list[Change],
    rows: RowRules | None,
    statements: StatementRules | None,
    *,
    alone: bool,
) -> None:
    """Decode a record whose table has these rules. Raises only UndecodableRecord.

    `alone`: as in its route. The rules are not applied to the changes yet."""
    try:
        format_.decode(record, into)
    except Exception as error:
        raise fault_under(error, record, has_rules(rows, statements, alone=alone)) from error


def has_rules(rows: RowRules | None, statements: StatementRules | None, *, alone: bool) -> bool:
    """Whether a record of the table may contain hidden values. `alone`: as in its route."""
    return rows is not None or (alone and statements is not None)


def skips(fault: UndecodableRecord, on_undecodable: str) -> bool:
    """Whether a record with this fault does not stop its table: it is skipped, or is only worth a warning."""
    if isinstance(fault, Unmet):
        return fault.action == "warn"
    return on_undecodable == "skip" and not isinstance(fault, ShownBehind)


def fault_under(error: Exception, record: Record, is_ruled: bool) -> UndecodableRecord:
    """Convert an error to a record's fault. With `is_ruled`, the fault quotes no value, because rules may
    hide it. (A format's own fault may quote values.)"""
    if not is_ruled:
        return fault_of(error, record)
    place = f"{record.topic()}[{record.partition()}] offset {record.offset()}"
    if isinstance(error, RuleFault | ValuelessFault):
        told = f"{error} (at {place})"
        return ShownBehind(told, error.tables) if isinstance(error, ShownBehind) else UndecodableRecord(told)
    return UndecodableRecord(
        f"{type(error).__name__}: the record cannot be decoded. Details may contain values that the table's "
        f"column rules hide: see the record with `binlane check --sample`, or as a dead letter (at {place})"
    )


class Guarded:
    """A format that does not decode a statement after which rows may show what rules hide.

    So whoever decodes, for whichever table, cannot pass it. All threads share one object."""

    name: str
    route: Callable[[bytes], Route]
    explain: Callable[[Record], Route | Skip | Apart]
    source_time_ms: Callable[[Record], int | None]

    def __init__(self, format_: Format, rules: Callable[[], StatementRules | None]) -> None:
        """`rules`: returns those of all tables; None if no table has any."""
        vars(self).update(passed_on(format_, Guarded))
        self.ungathered = self._format = format_  # its statements are not refused
        self._rules = rules

    def decode(self, record: Record, into: list[Change]) -> None:
        """Raises ShownBehind."""
        first = len(into)
        self._format.decode(record, into)
        if len(into) == first or into[first].op != "ddl" or (rules := self._rules()) is None:
            return
        try:
            found = self._format.explain(record)
        except UndecodableRecord:  # as of an unknown table
            found = PlainRoute("", "", True)
        if isinstance(found, Skip | Apart):
            return
        try:
            for change in into[first:]:
                rules.judged(change.sql or "", found.database, found.table)
        except Exception:
            del into[first:]
            raise
