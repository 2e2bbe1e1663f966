"""Column rules compiled for rows with certain columns: leave out, rename, mask and cast. Columns that would
share a name are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from handlers.options.faults import nearest
from handlers.options.matching import folded, folded_all
from worker.column_rules.computed import Computed
from worker.column_rules.forms import Added, Cast, added_of, cast_of
from worker.column_rules.masks import ColumnMask, mask_of
from worker.column_rules.settings import ColumnRules
from worker.formats.interface import UndecodableRecord

if TYPE_CHECKING:
    from handlers.mysql.ddl import Operation, TableName

Row = dict[str, Any]
Form = Callable[[Row], Row]

_MOST_SHAPES = 256
"""Most cached sets of columns. A table has one, and another for each set that its updates send."""


class RuleFault(ValueError):
    """The rules cannot be applied to a change or statement of the source. The message contains no value."""


class ShownBehind(RuleFault, UndecodableRecord):
    """The rules refuse a statement, and the rows after it may show what they hide."""

    def __init__(self, message: str, tables: Iterable[TableName]) -> None:
        """`tables`: those of these rows, as the source names them; the database is empty if it is unknown."""
        super().__init__(message)
        self.tables = tuple(tables)


class Treatment(NamedTuple):
    """The rules for one column of the source."""

    name: str
    to: str
    """Its name for handlers."""
    mask: ColumnMask | None
    cast: Cast | None

    @property
    def hides(self) -> bool:
        return self.mask is not None

    @property
    def changes_type(self) -> bool:
        return self.cast is not None or (self.mask is not None and self.mask.type is not None)

    def type_of(self, type_text: str) -> str:
        """Return its type text for handlers."""
        if self.cast is not None:
            return self.cast.type
        return type_text if self.mask is None or self.mask.type is None else self.mask.type

    def is_as(self, other: Treatment) -> bool:
        """Whether both give values the same form."""
        mine, its = self.mask, other.mask
        same_mask = mine is its or (mine is not None and its is not None and mine.rule == its.rule)
        return same_mask and (None if self.cast is None else self.cast.type) == (
            None if other.cast is None else other.cast.type
        )

    def form(self) -> Callable[[Any], Any] | None:
        """Return the function that masks or casts a value; None if it stays unchanged. The function raises
        RuleFault for values that cannot be cast."""
        if self.mask is not None:
            return self.mask.leaves
        if self.cast is None:
            return None
        convert, name, type_ = self.cast.convert, self.name, self.cast.type

        def cast(value: Any) -> Any:
            if value is None:
                return None
            try:
                return convert(value)
            except (ValueError, ArithmeticError, TypeError):
                raise RuleFault(f"column {name}: a value cannot be cast to {type_}") from None

        return cast


class ColumnPlans:
    """The column rules of one entry of `tables`. Any thread."""

    def __init__(self, rules: ColumnRules, secret: str | None, reserved: tuple[str, ...] = ()) -> None:
        """`secret`: masking.secret. `reserved`: names that no column may get. Raises ValueError for a hash
        without a secret, and if the rules give a column a reserved name."""
        given = folded_all((*rules.rename.values(), *rules.add))
        for name in reserved:
            if folded(name) in given:
                raise ValueError(
                    f"columns.rename or columns.add gives a column the name {name}, which is also "
                    "deleted_column: change one of the two"
                )
        self.rules = rules
        self._included = None if rules.include is None else folded_all(rules.include)
        self._excluded = folded_all(rules.exclude)
        self._renamed = {folded(name): to for name, to in rules.rename.items()}
        self._masks = {folded(name): mask_of(rule, secret) for name, rule in rules.mask.items()}
        self._casts = {folded(name): cast_of(text) for name, text in rules.cast.items()}
        expressions = rules.expressions
        self.computed = Computed(expressions, self._renamed)
        self.added: dict[str, Added] = {
            name: added_of(what) for name, what in rules.add.items() if name not in expressions
        }
        self.new_types = {
            name: self.added[name].type if name in self.added else expressions[name].type
            for name in rules.add
        }
        """New column -> its type text."""
        self._given = {folded(name): f"the added {name}" for name in (*rules.add, *reserved)}
        self.form: Callable[[tuple[str, ...]], Form] = lru_cache(_MOST_SHAPES)(self._form)
        """Returns the function that transforms rows with these columns, in this order. Raises RuleFault."""
        self.hidden: Callable[[tuple[str, ...]], list[str]] = lru_cache(_MOST_SHAPES)(
            lambda columns: [name for name in columns if (one := self.treatment(name)) is None or one.hides]
        )
        """Returns those of the columns that are left out or masked."""
        self.key: Callable[[tuple[str, ...]], tuple[str, ...]] = lru_cache(_MOST_SHAPES)(self._key)
        """Returns the names of these key columns for handlers. Raises RuleFault if a key column is hidden, or
        if different keys could become equal."""

    # ---- one column

    def treatment(self, name: str) -> Treatment | None:
        """Return a column's rules; None if it is left out."""
        low = folded(name)
        if low in self._excluded or (self._included is not None and low not in self._included):
            return None
        return Treatment(name, self._renamed.get(low, name), self._masks.get(low), self._casts.get(low))

    def is_hidden_by_name(self, name: str) -> bool:
        """Whether `exclude` or `mask` names it."""
        low = folded(name)
        return low in self._excluded or low in self._masks

    @property
    def hides(self) -> bool:
        """Whether any column is left out or masked."""
        return self._included is not None or bool(self._excluded or self._masks)

    def hides_no_more_than(self, other: ColumnPlans) -> bool:
        """Whether `other` also leaves out, or masks in the same way, all that these rules hide."""
        if self._included is not None and not (
            other._included is not None and other._included <= self._included
        ):
            return False
        for name in (*self._excluded, *self._masks):
            mine, its = self.treatment(name), other.treatment(name)
            if its is not None and (mine is None or not mine.is_as(its)):
                return False
        return True

    def unknown(self, columns: Iterable[str]) -> list[tuple[str, str | None]]:
        """List the names in the rules that are not columns of the table, with the probably intended ones."""
        there = list(columns)
        known = folded_all(there)
        return [(name, nearest(name, there)) for name in self.rules.named if folded(name) not in known]

    # ---- rows

    def _form(self, columns: tuple[str, ...]) -> Form:
        return _form(self.leaving(columns))

    def leaving(self, columns: Iterable[str]) -> list[Treatment]:
        """Return the rules of those columns that are not left out. Raises RuleFault if two would get the same
        name (ignoring case), because the values of one would be lost."""
        kept = [one for name in columns if (one := self.treatment(name)) is not None]
        taken = dict(self._given)
        for one in kept:
            low = folded(one.to)
            if low in taken:
                raise RuleFault(
                    f"column {one.name} and {taken[low]} would both be named {one.to}: give one of them "
                    "another name in columns.rename"
                )
            taken[low] = f"column {one.name}"
        return kept

    def _key(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        names = []
        for column in columns:
            one = self.treatment(column)
            if one is None:
                raise RuleFault(
                    f"{column} is a primary key column, and columns leaves it out: rows could not be "
                    "distinguished; mask it with hash instead"
                )
            if one.mask is not None and one.mask.rule.kind != "hash":
                raise RuleFault(
                    f"{column} is a primary key column, and its mask is {one.mask.rule.kind}: different rows "
                    "would get the same key; hash keeps them distinct"
                )
            if one.cast is not None and not one.cast.keeps_keys:
                raise RuleFault(
                    f"{column} is a primary key column, and can only be cast to text: with other types, "
                    "different rows could get the same key"
                )
            names.append(one.to)
        return tuple(names)

    def types(self, types: Mapping[str, str]) -> dict[str, str]:
        """Return the type texts of the columns for handlers. Raises RuleFault."""
        found = {one.to: one.type_of(types[one.name]) for one in self.leaving(types)}
        return found | self.new_types


def _form(kept: list[Treatment]) -> Form:
    names = [one.name for one in kept]
    to = [one.to for one in kept]
    changed = [(one.to, form) for one in kept if (form := one.form()) is not None]
    if len(names) < 2:  # itemgetter of one name does not return a tuple
        base: Form = lambda row: {after: row[name] for after, name in zip(to, names, strict=True)}  # noqa: E731
    else:
        values = itemgetter(*names)
        base = lambda row: dict(zip(to, values(row)))  # noqa: E731, B905 - both have the same length
    if not changed:
        return base

    def formed(row: Row) -> Row:
        made = base(row)
        for name, form in changed:
            made[name] = form(made[name])
        return made

    return formed


def refuse_shared(operations: Iterable[Operation], plans: ColumnPlans) -> None:
    """Raise RuleFault if two columns would have one name in the target, before or after the operations.

    `operations`: those of one statement on one table, as `net` returns them. A statement names only some
    columns. The columns that the rules rename are assumed to exist too, unless it drops or renames them.
    Without this check, dropping a column could drop the values of another."""
    from handlers.mysql import ddl  # noqa: PLC0415 (only workers with DDL need it)

    went: dict[str, str] = {}
    came: dict[str, str] = {}
    stay: dict[str, str] = {}
    for one in operations:
        match one:
            case ddl.AddColumn(column=column):
                came[folded(column.name)] = column.name
            case ddl.DropColumn(name=name):
                went[folded(name)] = name
            case ddl.RenameColumn(name=old, to=new):
                went[folded(old)], came[folded(new)] = old, new
            case ddl.ModifyColumn(column=column):
                stay[folded(column.name)] = column.name
            case ddl.ChangeKey(columns=columns):
                stay |= {folded(name): name for name in columns}
    if not (went or came or stay):
        return  # it names no column, or all of them (CREATE TABLE)
    for low, name in _without(went, came).items():
        if reader := plans.computed.reader_of(low):
            raise RuleFault(
                f"the source drops or renames {name}, which columns.add: {reader} reads: change this column"
            )
    stay = {folded(name): name for name in plans.rules.rename} | stay
    plans.leaving((_without(stay, came) | went).values())
    plans.leaving((_without(stay, went) | came).values())


def _without(columns: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {low: name for low, name in columns.items() if low not in others}
