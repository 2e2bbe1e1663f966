"""Columns of a statement that would share a name in the target with another one.

A statement tells some of the table's columns. Those that the rules rename are taken to be there besides, but
for what the statement itself says of them: dropping a column of such a name would drop another one's values.
"""

from __future__ import annotations

from collections.abc import Iterable

from handlers.mysql.ddl import operations as ddl
from worker.column_rules.plan import ColumnPlans


def refuse_shared(operations: Iterable[ddl.Operation], plans: ColumnPlans) -> None:
    """`operations`: those of one statement on one table, as `net` has them. Raises RuleFault where two
    columns would have one name in the target, before them or after them."""
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
        return  # it tells of no column, or of all, as CREATE TABLE does
    stay = {name.casefold(): name for name in plans.rules.rename} | stay
    plans.leaving((_without(stay, came) | went).values())
    plans.leaving((_without(stay, went) | came).values())


def _without(columns: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {low: name for low, name in columns.items() if low not in others}
