"""Which DDL statements of the source a handler applies to its target, and which tables they may change."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from pydantic import model_validator

from handlers.mysql import ddl
from handlers.mysql.ddl import CreateTable, DropTable, LoseRows, Operation, RenameTable, TableName
from handlers.options.shared import Section

_SWITCHES: dict[type[ddl.Operation], str] = {
    ddl.CreateTable: "create_tables",
    ddl.DropTable: "drop_tables",
    ddl.TruncateTable: "truncate",
    ddl.RenameTable: "rename_tables",
    ddl.AddColumn: "add_columns",
    ddl.DropColumn: "drop_columns",
    ddl.RenameColumn: "rename_columns",
    ddl.ModifyColumn: "retype_columns",
    ddl.ChangeKey: "retype_columns",
}


class DDLRules(Section):
    """One switch for each kind of statement. Statements that are switched off are logged and skipped.

    The option is a mapping of these switches, or `true` or `false` for all of them."""

    create_tables: bool = True
    """CREATE TABLE, also LIKE and SELECT."""
    drop_tables: bool | Literal["made"] = "made"
    """DROP TABLE. made: only for tables that binlane has created."""
    truncate: bool = True
    """TRUNCATE TABLE."""
    rename_tables: bool = True
    """RENAME TABLE, ALTER TABLE ... RENAME."""
    add_columns: bool = True
    """ADD COLUMN, with the default in existing rows."""
    drop_columns: bool = True
    """DROP COLUMN."""
    rename_columns: bool = True
    """RENAME COLUMN, and CHANGE of a name."""
    retype_columns: bool = True
    """Changes of columns' types and of the key's columns."""

    @model_validator(mode="before")
    @classmethod
    def _one_switch_for_all(cls, given: Any) -> Any:
        return dict.fromkeys(cls.model_fields, given) if isinstance(given, bool) else given

    def switch_off(self, operation: ddl.Operation) -> str | None:
        """Return the switch that skips this operation; None if it is applied."""
        switch = _SWITCHES.get(type(operation))
        return switch if switch is not None and not getattr(self, switch) else None


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
    """Return each table that the operation names: its own first, then that of RENAME ... TO, LIKE or WITH."""
    match operation:
        case LoseRows(table=table, other=TableName() as other):
            return table, other
        case RenameTable(table=table, to=to):
            return table, to
        case CreateTable(table=table, like=TableName() as like):
            return table, like
    return (operation.table,)


def free_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return the first free one of NAME_old, NAME_old2, NAME_old3 ..."""
    return next(
        new for number in count(1) if not is_taken(new := f"{name}_old{'' if number == 1 else number}")
    )
