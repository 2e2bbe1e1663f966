"""DDL under column rules: a statement is parsed, changed and rewritten.

The result has only columns, keys and tables: no comments, checks or indexes, and no defaults that name
hidden columns. A statement that renames a hidden column to a name that is not hidden is refused, because its
values would be visible from then on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Literal

import msgspec

from handlers import Change
from handlers.mysql import ddl
from handlers.mysql.ddl.rules import names_of
from handlers.mysql.online_changes import is_left_over
from handlers.options.matching import folded
from worker.column_rules.plan import ColumnPlans, RuleFault, ShownBehind, Treatment, refuse_shared
from worker.column_rules.row_rules import DELETED_TYPE, RowRules

_CLAUSES = (ddl.LoseRows, ddl.DropColumn, ddl.RenameColumn, ddl.ModifyColumn, ddl.AddColumn, ddl.ChangeKey)
"""Clauses in the order in which they are applied."""

_MYSQL = {"boolean": "tinyint(1)"}
"""Types of the column rules that MySQL knows by another name."""
_MOST_READ = 4
_BOUNDS = re.compile(r"(`[^`]*`|\"[^\"]*\")|\s*(?<![^\s`\"])VALUES(?![\w$]).*", re.IGNORECASE | re.DOTALL)
"""A quoted name, or the bounds of a partition."""
_RulesOf = Callable[[ddl.TableName, str], RowRules | None]
"""Returns the rules of a table. The second argument is the database of unqualified names."""


class StatementRules:
    """Applies the rules of all tables to statements, which may name several tables. Any thread."""

    def __init__(
        self,
        rules_of: Callable[[str, str], RowRules | Literal["skipped"] | None],
        any_rules_of: Callable[[str], Iterable[RowRules]],
    ) -> None:
        """`rules_of`: returns the rules of a table of a database, None if it has none, "skipped" if no
        rule matches it. `any_rules_of`: all rules that a table of this name may have in some database."""
        self._rules_of = rules_of
        self._any_rules_of = any_rules_of
        self._read = lru_cache(_MOST_READ)(_read)  # the guard has read what is then followed

    def follow(self, change: Change, database: str, table: str) -> Change | None:
        """Return the change with the rewritten statement; the same change if no table of the statement has
        rules; None if nothing remains. Raises RuleFault."""
        from handlers.mysql.ddl.written import written  # noqa: PLC0415 - sqlglot is slow to import

        told = self.judged(change.sql or "", database, table)
        if told is None:
            return change
        of = self._of_record(database, table)
        own = of(ddl.TableName(database, table), database)
        emptied = [str(one.table).casefold() for one in told if isinstance(one, ddl.TruncateTable)]
        if own is not None and own.deletes == "mark" and emptied == [f"{database}.{table}".casefold()]:
            return own.truncated(change, database, table)
        for name in {one.table for one in told}:
            if (rules := of(name, database)) is not None:
                refuse_shared((one for one in told if one.table == name), rules.plans)
        left = [kept for one in told for kept in _kept(one, database, change.source_time_ms, of)]
        left.sort(key=lambda one: _CLAUSES.index(type(one)) if type(one) in _CLAUSES else -1)
        if not left:
            return None
        try:
            sql = written(left)
            is_same = _told(_read(sql, database)) == _told(left)
        except ddl.StatementError:
            is_same = False
        if not is_same:
            raise RuleFault(
                "its DDL cannot be rewritten to follow the table's column rules; it is not shown here"
            )
        return msgspec.structs.replace(change, sql=sql, types=None)

    def judged(self, sql: str, database: str, table: str) -> Sequence[ddl.Operation] | None:
        """Return a statement's operations; None if none of its tables has rules. Raises ShownBehind for all
        tables whose later rows may show what is hidden, and RuleFault if nobody can read the statement.

        Every statement of the source passes here when it is decoded (Guarded). `database` and `table` are
        those of its record, in the source's words; an empty database is unknown."""
        of = self._of_record(database, table)
        own = of(ddl.TableName(database, table), database)
        try:
            told = self._read(sql, database)
        except ddl.StatementError:
            # It is about its own table, or about any table that one of its words names.
            words = [] if own is not None else dict.fromkeys(_words(sql))
            names = [ddl.TableName(database, name) for name in (*filter(None, [table]), *words)]
            meant = [(name, one) for name in names for one in self._all_of(name, database, of)]
            if not meant:
                return None
            text = (
                "its DDL cannot be read, so the table's column rules cannot be applied to it; it is not "
                "shown here"
            )
            if hiding := [name for name, one in meant if not one.hides_no_more_than(None)]:
                raise ShownBehind(text, hiding) from None
            raise RuleFault(text) from None
        is_involved = any(self._all_of(name, database, of) for one in told for name in names_of(one))
        if own is None and not is_involved:
            return None
        if shown := list(self._shown(told, database, of)):
            raise ShownBehind(shown[0][0], (one for _, tables in shown for one in tables))
        return told

    def _shown(
        self, told: Sequence[ddl.Operation], database: str, of: _RulesOf
    ) -> Iterator[tuple[str, tuple[ddl.TableName, ...]]]:
        """Yield the reasons to refuse a statement, each with the tables whose later rows may show what is
        hidden, and those that had these rows."""
        moves = list[ddl.RenameTable]()
        came_from: dict[str, dict[str, set[ddl.TableName]]] = {}  # table -> database -> first names
        for one in told:
            if isinstance(one, ddl.RenameTable):
                to = ddl.TableName(ddl.ANY_DATABASE, one.to.table) if one.is_open else one.to
                known = came_from.setdefault(folded(one.table.table), {})
                firsts = _firsts(one.table, known)
                came_from.setdefault(folded(to.table), {})[folded(to.database)] = firsts
                moves += (ddl.RenameTable(table, to) for table in dict.fromkeys([one.table, *sorted(firsts)]))
            elif isinstance(one, ddl.LoseRows) and one.other is not None:
                moves += ddl.RenameTable(one.table, one.other), ddl.RenameTable(one.other, one.table)
            elif isinstance(one, ddl.RenameColumn):
                all_ = self._all_of(one.table, database, of)
                yield from (
                    (text, (one.table,)) for rules in all_ if (text := _why_renamed(one, rules.plans))
                )
        for one in moves:
            if text := self._why_shown(one, database, of):
                yield text, (one.table, one.to) if one.table.database else (one.to,)

    def _of_record(self, database: str, table: str) -> _RulesOf:
        """Return a function for the rules of the tables that a record's statement names."""
        found = self._rules_of(database, table)
        return partial(self._of, own=(f"{database}.{table}", found if isinstance(found, RowRules) else None))

    def _of(self, name: ddl.TableName, database: str, *, own: tuple[str, RowRules | None]) -> RowRules | None:
        """Return a table's rules. `own`: the record's table, with its rules. Servers that ignore case log a
        statement as the user spelled it, and rows under one name."""
        full = name.database or database, name.table
        if isinstance(found := self._rules_of(*full), RowRules):
            return found
        return own[1] if folded(".".join(full)) == folded(own[0]) else None

    def _all_of(self, name: ddl.TableName, database: str, of: _RulesOf) -> list[RowRules]:
        """Return the rules of all tables that the name may mean."""
        found = [rules] if (rules := of(name, database)) is not None else []
        return [*found, *(self._any_rules_of(name.table) if name.database == ddl.ANY_DATABASE else ())]

    def _why_shown(  # noqa: PLR0911 - one return for each reason
        self, operation: ddl.RenameTable, database: str, of: _RulesOf
    ) -> str:
        """Explain that a rename would show rows or columns under one name that the rules of the other name
        hide. Empty if not."""
        table, to = operation.table, operation.to
        olds, new = self._all_of(table, database, of), of(to, database)
        if to.database == ddl.ANY_DATABASE:
            every = {*olds, *self._all_of(to, database, of)}
            everywhere = [self._rules_of("", one.table) for one in (table, to)]
            if all(one.hides_no_more_than(None) for one in every) or everywhere == [*every] * 2:
                return ""
            return (
                f"the source renames {table.table} to {to.table}, and the statement does not name the "
                f"database of {to.table}: its rows may show what column rules hide"
            )
        old = next((one for one in olds if not one.hides_no_more_than(new)), of(table, database))
        if table.database == ddl.ANY_DATABASE and new is not None and not new.hides_no_more_than(None):
            return (
                f"the source renames {table.table} to {to}, whose rules hide columns or rows, and the "
                f"statement does not name the database of {table.table}: its rows may show what is hidden. "
                f"If {to} exists in the target, drop it; load it again, and set this record aside"
            )
        source = table if table.database else table.table
        # If the database is unknown, the table may be one with rules, so it does not count as "skipped".
        tables = (to,) if table.database == ddl.ANY_DATABASE and olds else (table, to)
        if "skipped" in [self._rules_of(one.database or database, one.table) for one in tables]:
            return ""  # no target has its rows, or no target gets them from now on
        if new is not None and not new.hides_no_more_than(old):
            return (
                f"the source renames {table} to {to}, whose rules hide data that the rules of {table} do "
                f"not: its rows would show this data. Drop {table} in the target, give both tables the same "
                f"rules, and load {to} again; then set this record aside"
            )
        if old is not None and not old.hides_no_more_than(new):
            return (
                f"the source renames {source} to {to}, whose rules hide less than those of {source}: its "
                f"rows would show hidden data from now on. Give {to} the rules of {source}, and restart"
            )
        return ""


def _firsts(table: ddl.TableName, known: Mapping[str, set[ddl.TableName]]) -> set[ddl.TableName]:
    """Return the names that a table had before its statement. `known`: those of all tables that were renamed
    to this name, by database."""
    database = folded(table.database)
    if database == ddl.ANY_DATABASE:
        return {table}.union(*known.values())
    return known.get(database) or {table, *known.get(ddl.ANY_DATABASE, ())}


def _kept(operation: ddl.Operation, database: str, time_ms: int, of: _RulesOf) -> Iterator[ddl.Operation]:
    """Yield the parts of an operation that handlers may see. `of`: the rules of a table."""
    rules = of(operation.table, database)
    if rules is not None and isinstance(operation, ddl.CreateTable) and is_left_over(operation.table.table):
        return  # gh-ost creates it as a placeholder with its own columns
    if isinstance(operation, ddl.CreateTable) and operation.like is not None:
        # A copy has the columns of its model. If its rules differ, its first row creates it instead.
        if rules is of(operation.like, database):
            yield operation
    elif rules is None or isinstance(operation, ddl.DropTable | ddl.RenameTable):
        yield operation
    elif isinstance(operation, ddl.TruncateTable):
        if rules.deletes == "mark":
            raise RuleFault("TRUNCATE of another table whose deletes are marked (deletes: mark) is refused")
        if rules.deletes == "apply":
            yield operation
    else:
        yield from _of_columns(operation, rules, time_ms)


def _read(sql: str, database: str) -> Sequence[ddl.Operation]:
    """Return what a statement does. Raises StatementError."""
    from handlers.mysql.ddl.written import net  # noqa: PLC0415 - sqlglot is slow to import

    return net(ddl.parse(sql, database))


def _told(operations: Sequence[ddl.Operation]) -> tuple[list[ddl.Operation], set[ddl.RenameColumn]]:
    """Separate the renames as a set: columns are renamed all at once, so their order does not matter."""
    renames = {one for one in operations if isinstance(one, ddl.RenameColumn)}
    return [one for one in operations if not isinstance(one, ddl.RenameColumn)], renames


def _of_columns(operation: ddl.Operation, rules: RowRules, time_ms: int) -> Iterator[ddl.Operation]:
    plans = rules.plans
    match operation:
        case ddl.CreateTable(table=table, columns=columns, key=key):
            kept = [_definition(plans.treatment(one.name), one, rules, time_ms) for one in columns]
            plans.leaving(one.name for one in columns)  # refuses two columns with one name
            added = [ddl.Column(name, _MYSQL.get(type_, type_)) for name, type_ in plans.new_types.items()]
            if rules.deletes == "mark":
                added.append(ddl.Column(rules.deleted_column, DELETED_TYPE))
            yield ddl.CreateTable(table, (*(one for one in kept if one is not None), *added), plans.key(key))
        case ddl.AddColumn(column=column, after=after):
            made = _definition(plans.treatment(column.name), column, rules, time_ms, fills=True)
            if made is not None:
                yield replace(operation, column=made, after=_behind(after, rules))
        case ddl.ModifyColumn(column=column, after=after):
            treatment = plans.treatment(column.name)
            if treatment is not None and (column.generated is not None or not treatment.changes_type):
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
        case ddl.LoseRows(clause=clause):  # without the bounds of a partition, which are values
            yield replace(operation, clause=_BOUNDS.sub(lambda found: found[1] or "", clause))


def _why_renamed(operation: ddl.RenameColumn, plans: ColumnPlans) -> str:
    """Explain that a rename shows a hidden column. Empty if not."""
    old, new, after = operation.name, operation.to, plans.treatment(operation.to)
    if not plans.is_hidden_by_name(old) or after is None or after.hides:
        return ""
    return (
        f"the source renames {old}, which columns hides, to {new}, which is not hidden: its values would "
        f"be visible as {new}; give {new} the rule of {old}, too"
    )


def _renamed(operation: ddl.RenameColumn, plans: ColumnPlans) -> Iterator[ddl.Operation]:
    old, new = operation.name, operation.to
    before, after = plans.treatment(old), plans.treatment(new)
    if before is None:
        return  # if the column is visible now, its first row adds it
    if after is not None and not after.hides and not before.is_as(after):
        raise RuleFault(
            f"the source renames {old} to {new}, and columns.cast gives them different types: existing rows "
            f"would lose their values; cast {new} like {old}, too"
        )
    if after is None or not before.is_as(after):
        yield ddl.DropColumn(operation.table, before.to)  # old and new values differ in form
    elif before.to != after.to:
        yield ddl.RenameColumn(operation.table, before.to, after.to)


def _behind(after: str | None, rules: RowRules) -> str | None:
    """Return the target's name of the column in AFTER; None if the column is hidden."""
    if not after:
        return after
    treatment = rules.plans.treatment(after)
    return None if treatment is None else treatment.to


def _definition(
    treatment: Treatment | None, column: ddl.Column, rules: RowRules, time_ms: int, *, fills: bool = False
) -> ddl.Column | None:
    """Return the column's definition for handlers; None if it is hidden.

    `fills`: existing rows get its default, or the type's default if it is NOT NULL and names none."""
    if treatment is None:
        return None
    if fills and column.numbered and (rules.filter is not None or rules.deletes != "apply"):
        column = replace(column, numbered=0, nullable=True)  # targets have other rows than the source
    if column.generated is not None and (treatment.hides or _tells_hidden(column.generated, rules)):
        column = replace(column, generated="NULL")
    if treatment.mask is None and treatment.cast is None:
        own = column.default
        if own is not None and own.kind == "expression" and _tells_hidden(own.text, rules):
            # NULL instead of the type's default, because the values of existing rows cannot be computed.
            column = replace(column, default=None, nullable=True)
        return replace(column, name=treatment.to)
    form = treatment.form()
    assert form is not None  # it has a mask or a cast
    default = None
    if not column.numbered and (column.default is not None or (fills and not column.nullable)):
        default = _default(form, column, time_ms)
    # As above: NULL if no value is known.
    is_open = default is None and (fills or column.default is not None)
    nullable = treatment.hides or column.nullable or is_open
    type_ = treatment.type_of(column.type)
    return ddl.Column(treatment.to, _MYSQL.get(type_, type_), nullable, default, column.generated)


def _tells_hidden(expression: str, rules: RowRules) -> bool:
    """Whether an expression may name a hidden column. With `include`, any other word may be one."""
    found = map(rules.plans.treatment, _words(expression))
    has_quotes = '"' in expression or "``" in expression  # a name may contain a quote, where `_words` splits
    return (has_quotes and rules.plans.hides) or any(one is None or one.hides for one in found)


def _words(sql: str) -> list[str]:
    """Return what may be a name. Quoted names may contain spaces, and only they may be numbers."""
    words = re.findall(r"(?<![\w$])\d*+(?:[\w$]|[^\x00-\x7f])+", sql)
    pieces = re.split(r"[`\"]", sql)
    return words + pieces if len(pieces) > 1 else words


def _default(form: Callable[[object], object], column: ddl.Column, time_ms: int) -> ddl.Default | None:
    """Return a default in the masked or cast form of the column's values; None if it has none."""
    from handlers.mysql.ddl.values import default_value  # noqa: PLC0415 - sqlglot is slow to import
    from worker.column_rules.forms import canonical  # noqa: PLC0415

    value = default_value(column, time_ms)
    if value is None:
        return None
    try:
        made = form(value)
    except RuleFault:
        return None
    return None if made is None else ddl.Default("text", canonical(made).decode("utf-8", "replace"))
