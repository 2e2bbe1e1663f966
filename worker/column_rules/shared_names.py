"""Columns of a statement that would get the same name in the target."""

from __future__ import annotations

from collections.abc import Iterable

from handlers.mysql.ddl import operations as ddl
from worker.column_rules.plan import ColumnPlans


def refuse_shared(operations: Iterable[ddl.Operation], plans: ColumnPlans) -> None:
    """Raise RuleFault if two columns would have one name in the target, before or after the operations.

    `operations`: those of one statement on one table, as `net` returns them. A statement names only some
    columns. The columns that the rules rename are assumed to exist too, unless it drops or renames them.
    Without this check, dropping a column could drop the values of another."""
    went: dict[str, str] = {}
    came: dict[str, str] = {}
    stay: dict[str, str] = {}
    for one in operations:
        match one:
            case ddl.AddColumn(column=column):
                came[column.name.casefold()] = column.name
            case ddl.DropColumn(name=name):
                went[name.casefold()] = name
            case ddl.RenameColumn(name=old, to=new):
                went[old.casefold()], came[new.casefold()] = old, new
            case ddl.ModifyColumn(column=column):
                stay[column.name.casefold()] = column.name
            case ddl.ChangeKey(columns=columns):
                stay |= {name.casefold(): name for name in columns}
    if not (went or came or stay):
        return  # it names no column, or all of them (CREATE TABLE)
    stay = {name.casefold(): name for name in plans.rules.rename} | stay
    plans.leaving((_without(stay, came) | went).values())
    plans.leaving((_without(stay, went) | came).values())


def _without(columns: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {low: name for low, name in columns.items() if low not in others}
