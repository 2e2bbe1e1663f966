"""The tables that a statement may change: those whose rules name the handler and that it has written.

A statement names tables itself: a record of shop.orders may contain `DROP TABLE payroll.salaries`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from handlers.mysql.ddl.operations import CreateTable, DropTable, Operation, RenameTable, TableName
from handlers.mysql.ddl.rules import DDLRules


@dataclass(frozen=True, slots=True)
class Reach:
    """The tables that one handler may change."""

    handles: Callable[[str], bool]
    """Whether the rule of this table ("database.table") sends its records to the handler."""
    keeps: Callable[[TableName], bool]
    """Whether the handler has written this table before."""
    made: Callable[[TableName], bool]
    """Whether binlane has created the table in the target."""

    def refusal(self, operation: Operation, own: Collection[TableName], rules: DDLRules) -> str:
        """Explain why the operation must not be applied; empty if it may.

        `own`: the table of the statement's record, which the handler always keeps, and the new names of
        tables that the statement has renamed."""
        table = operation.table
        for name in names_of(operation):
            if name not in own and not self.handles(str(name)):
                return f"no rule routes {name} to this handler"
        # The copy of a table named by LIKE would show its columns and their defaults to others.
        needed = operation.like if isinstance(operation, CreateTable) else table
        if needed is not None and needed not in own and not self.keeps(needed):
            return f"this handler has written no row of {needed}"
        if isinstance(operation, DropTable) and rules.drop_tables == "made" and not self.made(table):
            return "binlane did not create this table; to drop it, set ddl.drop_tables: true"
        return ""


def names_of(operation: Operation) -> tuple[TableName, ...]:
    """Return each table that the operation names: its own first, then that of RENAME ... TO or LIKE."""
    match operation:
        case RenameTable(table=table, to=to):
            return table, to
        case CreateTable(table=table, like=TableName() as like):
            return table, like
    return (operation.table,)
