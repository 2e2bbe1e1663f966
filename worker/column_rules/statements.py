"""DDL under column rules: a statement is read, changed, and written anew.

What it said besides columns, keys and tables (comments, checks, indexes) does not leave, nor does a default
of a column that does not. A statement that would carry a hidden column to a name by which it is not hidden is
refused: its values would leave from then on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

import msgspec

from handlers import Change
from handlers.mysql.ddl import operations as ddl
from handlers.mysql.ddl.reach import names_of
from handlers.mysql.online_changes import is_left_over
from worker.column_rules.plan import ColumnPlans, RuleFault, ShownBehind, Treatment, refuse_shared
from worker.column_rules.row_rules import DELETED_TYPE, RowRules

_CLAUSES = (ddl.LoseRows, ddl.DropColumn, ddl.RenameColumn, ddl.ModifyColumn, ddl.AddColumn, ddl.ChangeKey)
"""In the order in which the clauses of a statement are followed."""

_RulesOf = Callable[[ddl.TableName, str], RowRules | None]
"""The rules of a table, and the database of names that tell none."""


class StatementRules:
    """The rules of all tables, for statements: one may name other tables than its record's. Any thread."""

    def __init__(
        self,
        rules_of: Callable[[str], RowRules | Literal["skipped"] | None],
        databases: Iterable[str] = (),
    ) -> None:
        """`rules_of`: of a table ("database.table"); None: it has none; "skipped": no rule matches it.
        `databases`: those that the rules name."""
        self._rules_of = rules_of
        self._databases = tuple(dict.fromkeys(databases))

    def follow(self, change: Change, database: str, table: str) -> Change | None:
        """The change with the statement that may leave; itself where no table of the statement has rules;
        None where nothing is left of it. Raises RuleFault."""
        from handlers.mysql.ddl import parse  # noqa: PLC0415 - sqlglot takes its time
        from handlers.mysql.ddl.written import net, written  # noqa: PLC0415

        found = self._rules_of(f"{database}.{table}")
        own = found if isinstance(found, RowRules) else None
        of = partial(self._of, own=(f"{database}.{table}", own))
        try:
            operations = parse(change.sql or "", database)
        except ddl.StatementError:
            if own is None:
                return change
            raise (RuleFault if own.hides_no_more_than(None) else ShownBehind)(
                "its DDL cannot be read, and so not be brought under the table's column rules; it is not "
                "shown here"
            ) from None
        is_involved = any(self._all_of(name, database, of) for one in operations for name in names_of(one))
        if own is None and not is_involved:
            return change
        emptied = [str(one.table).casefold() for one in operations if isinstance(one, ddl.TruncateTable)]
        if own is not None and own.deletes == "mark" and emptied == [f"{database}.{table}".casefold()]:
            return own.truncated(change, database, table)
        told = net(operations)
        for one in told:
            if isinstance(one, ddl.RenameTable):
                self._refuse_shown(one, database, of)
            elif isinstance(one, ddl.RenameColumn) and (rules := of(one.table, database)) is not None:
                _refuse_renamed(one, rules.plans)
        for name in {one.table for one in told}:
            if (rules := of(name, database)) is not None:
                refuse_shared((one for one in told if one.table == name), rules.plans)
        left = [kept for one in told for kept in _kept(one, database, change.source_time_ms, of)]
        left.sort(key=lambda one: _CLAUSES.index(type(one)) if type(one) in _CLAUSES else -1)
        if not left:
            return None
        try:
            sql = written(left)
            is_same = _told(net(parse(sql, database))) == _told(left)
        except ddl.StatementError:
            is_same = False
        if not is_same:
            raise RuleFault(
                "its DDL cannot be written anew under the table's column rules; it is not shown here"
            )
        return msgspec.structs.replace(change, sql=sql, types=None)

    def _of(self, name: ddl.TableName, database: str, *, own: tuple[str, RowRules | None]) -> RowRules | None:
        """`own`: the record's table, with its rules. Servers that do not tell case apart write a statement as
        it was spelled, and their rows under one name."""
        full = f"{name.database or database}.{name.table}"
        if isinstance(found := self._rules_of(full), RowRules):
            return found
        return own[1] if full.casefold() == own[0].casefold() else None

    def _all_of(self, name: ddl.TableName, database: str, of: _RulesOf) -> list[RowRules]:
        """The rules of all tables that the name may mean."""
        names = [name]
        if name.database == ddl.ANY_DATABASE:
            names += [ddl.TableName(one, name.table) for one in self._databases]
        return [rules for one in names if (rules := of(one, database)) is not None]

    def _refuse_shown(self, operation: ddl.RenameTable, database: str, of: _RulesOf) -> None:
        """Raises ShownBehind for a table that one of its names would show, while the rules of the other hide
        it."""
        table, to = operation.table, operation.to
        olds, new = self._all_of(table, database, of), of(to, database)
        old = next((one for one in olds if not one.hides_no_more_than(new)), of(table, database))
        if table.database == ddl.ANY_DATABASE and new is not None and not new.hides_no_more_than(None):
            raise ShownBehind(
                f"the source renames {table.table} to {to}, whose rules hide columns or rows, and the "
                f"statement does not say which database's {table.table} it was: its rows may show what is "
                f"hidden. Drop {to} in the target if it is there, load it again, and set this record aside"
            )
        source = table if table.database else table.table
        # A table of an untold database is perhaps none that no rule matches.
        tables = (to,) if table.database == ddl.ANY_DATABASE and olds else (table, to)
        names = [f"{one.database or database}.{one.table}" for one in tables]
        if "skipped" in map(self._rules_of, names):
            return  # nothing of it is in a target, or comes there from now on
        if new is not None and not new.hides_no_more_than(old):
            raise ShownBehind(
                f"the source renames {table} to {to}, whose rules hide what those of {table} do not: its "
                f"rows would show it. Drop {table} in the target, give both tables the same rules, and load "
                f"{to} again; then set this record aside"
            )
        if old is not None and not old.hides_no_more_than(new):
            raise ShownBehind(
                f"the source renames {source}, whose rules hide what those of {to} do not, to {to}: its rows "
                f"would show it from now on. Give {to} the rules of {source}, and restart"
            )


def _kept(
    operation: ddl.Operation,
    database: str,
    time_ms: int,
    of: _RulesOf,
) -> Iterator[ddl.Operation]:
    """What may leave of it. `of`: the rules of a table."""
    rules = of(operation.table, database)
    if rules is not None and isinstance(operation, ddl.CreateTable) and is_left_over(operation.table.table):
        return  # gh-ost makes it to hold the name, with columns of its own
    if isinstance(operation, ddl.CreateTable) and operation.like is not None:
        # A copy has the columns of what it copies: under other rules, its first row makes it.
        if rules is of(operation.like, database):
            yield operation
    elif rules is None or isinstance(operation, ddl.DropTable | ddl.RenameTable):
        yield operation
    elif isinstance(operation, ddl.TruncateTable):
        if rules.deletes == "mark":
            raise RuleFault("TRUNCATE of another table, whose rows are marked (deletes: mark), cannot leave")
        if rules.deletes == "apply":
            yield operation
    else:
        yield from _of_columns(operation, rules, time_ms)


def _told(operations: list[ddl.Operation]) -> tuple[list[ddl.Operation], set[ddl.RenameColumn]]:
    """Columns are renamed all at once: in which order is not said."""
    renames = {one for one in operations if isinstance(one, ddl.RenameColumn)}
    return [one for one in operations if not isinstance(one, ddl.RenameColumn)], renames


def _of_columns(operation: ddl.Operation, rules: RowRules, time_ms: int) -> Iterator[ddl.Operation]:
    plans = rules.plans
    match operation:
        case ddl.CreateTable(table=table, columns=columns, key=key):
            kept = [_definition(plans.treatment(one.name), one, rules, time_ms) for one in columns]
            plans.leaving(one.name for one in columns)  # two of one name are refused
            added = [ddl.Column(name, added.type) for name, added in plans.added.items()]
            if rules.deletes == "mark":
                added.append(ddl.Column(rules.deleted_column, DELETED_TYPE))
            yield ddl.CreateTable(table, (*(one for one in kept if one is not None), *added), plans.key(key))
        case ddl.AddColumn(column=column, after=after):
            made = _definition(plans.treatment(column.name), column, rules, time_ms, fills=True)
            if made is not None:
                yield replace(operation, column=made, after=_behind(after, rules))
        case ddl.ModifyColumn(column=column, after=after):
            treatment = plans.treatment(column.name)
            if treatment is not None and not treatment.changes_type:
                made = _definition(treatment, column, rules, time_ms)
                if made is not None:
                    yield replace(operation, column=made, after=_behind(after, rules))
        case ddl.DropColumn(name=name):
            treatment = plans.treatment(name)
            if treatment is not None:
                yield replace(operation, name=treatment.to)
        case ddl.RenameColumn():
            yield from _renamed(operation, plans)
        case ddl.ChangeKey(columns=columns):
            yield replace(operation, columns=plans.key(columns))
        case _:  # partitions
            yield operation


def _refuse_renamed(operation: ddl.RenameColumn, plans: ColumnPlans) -> None:
    """Before any other fault of the statement. Raises ShownBehind."""
    old, new, after = operation.name, operation.to, plans.treatment(operation.to)
    if plans.is_hidden_by_name(old) and after is not None and not after.hides:
        raise ShownBehind(
            f"the source renames {old}, which columns hides, to {new}, which it does not: its values would "
            f"leave as {new}; give {new} the rule of {old}, too"
        )


def _renamed(operation: ddl.RenameColumn, plans: ColumnPlans) -> Iterator[ddl.Operation]:
    old, new = operation.name, operation.to
    before, after = plans.treatment(old), plans.treatment(new)
    if before is None:
        return  # its first row brings the column, if it leaves now
    if after is not None and not after.hides and not before.is_as(after):
        raise RuleFault(
            f"the source renames {old} to {new}, and columns.cast does not give both one type: rows that are "
            f"there would lose their values; cast {new} as {old}, too"
        )
    if after is None or not before.is_as(after):
        yield ddl.DropColumn(operation.table, before.to)  # what it held is not what it holds from now on
    elif before.to != after.to:
        yield ddl.RenameColumn(operation.table, before.to, after.to)


def _behind(after: str | None, rules: RowRules) -> str | None:
    """The column that another stands behind, as it leaves; None where it does not."""
    if not after:
        return after
    treatment = rules.plans.treatment(after)
    return None if treatment is None else treatment.to


def _definition(
    treatment: Treatment | None, column: ddl.Column, rules: RowRules, time_ms: int, *, fills: bool = False
) -> ddl.Column | None:
    """The column as it leaves; None: it does not.

    `fills`: rows that are there get its default, and that of its type where it is NOT NULL and names none.
    """
    if treatment is None:
        return None
    if treatment.mask is None and treatment.cast is None:
        if column.default is not None and _tells_hidden(column.default, rules):
            # NULL, not the type's own default: nobody computes the values of rows that are there.
            column = replace(column, default=None, nullable=True)
        return replace(column, name=treatment.to, generated=_expression(column, rules))
    form = treatment.form()
    assert form is not None  # it has a mask or a cast
    default = None
    if not column.numbered and (column.default is not None or (fills and not column.nullable)):
        default = _default(form, column, time_ms)
    # NULL, as above, if no value is known.
    is_open = default is None and (fills or column.default is not None)
    nullable = treatment.hides or column.nullable or is_open
    return ddl.Column(treatment.to, treatment.type_of(column.type), nullable, default)


def _expression(column: ddl.Column, rules: RowRules) -> str | None:
    """A generated column's, where all that it is computed from is in the target as it is in the source."""
    from handlers.mysql.ddl.values import formula_of  # noqa: PLC0415 - sqlglot takes its time

    formula = formula_of(column)
    if formula is None:
        return None
    for name in formula.columns:
        one = rules.plans.treatment(name)
        if one is None or one.mask is not None or one.cast is not None or one.to != name:
            return None
    return column.generated


def _tells_hidden(default: ddl.Default, rules: RowRules) -> bool:
    """Whether an expression may name a column that is hidden: of those that are included, any word may."""
    text = default.text
    words = [*re.findall(r"[\w$]+", text), *re.split(r"[`\"]", text)]  # also of two words, or with a dash
    return default.kind == "expression" and any(
        (one := rules.plans.treatment(word)) is None or one.hides for word in words
    )


def _default(form: Callable[[object], object], column: ddl.Column, time_ms: int) -> ddl.Default | None:
    """A default in the form in which the column's values leave; None where there is none."""
    from handlers.mysql.ddl.values import default_value  # noqa: PLC0415 - sqlglot takes its time
    from worker.column_rules.canonical import canonical  # noqa: PLC0415

    value = default_value(column, time_ms)
    if value is None:
        return None
    try:
        made = form(value)
    except RuleFault:
        return None
    return None if made is None else ddl.Default("text", canonical(made).decode("utf-8", "replace"))
