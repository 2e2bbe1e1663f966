"""Match the columns of a source table with those of its replica, and find the key that identifies rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from pyspark.sql.types import StringType, StructType

from worker.column_rules.plan import ColumnPlans
from worker.verifying.forms import Form, form_of
from worker.verifying.source import SourceTable

_TEXT = sa.Text()


class TooDifferent(RuntimeError):
    """The two sides cannot be compared at all."""


@dataclass(slots=True)
class Leaving:
    """The columns of a table that reach its replica by the rules."""

    names: dict[str, str] = field(default_factory=dict)
    """Source column -> its name in the replica, for those that reach it."""
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Masked or cast columns: their values differ from the source's."""
    added: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plans: ColumnPlans | None, columns: Iterable[str]) -> Leaving:
        """Apply the plans to the columns. `plans`: None without rules."""
        if plans is None:
            return cls({name: name for name in columns})
        made = cls(added=list(plans.new_types))
        for name in columns:
            one = plans.treatment(name)
            if one is None:
                made.left_out.append(name)
                continue
            made.names[name] = one.to
            if one.mask is not None or one.cast is not None:
                made.changed.append(name)
        return made

    def name_of(self, name: str) -> str | None:
        """Return the column's name in the replica; None: it is left out."""
        return self.names.get(name)

    def source_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the source's names of these replica columns."""
        back = {to.lower(): name for name, to in self.names.items()}
        return tuple(back.get(name.lower(), name) for name in names)

    def notes(self, there: dict[str, Any]) -> list[str]:
        """Return remarks about the rules. Remove the columns that they explain from `there`: the replica's
        columns (by lower-case name) that the source lacks."""
        found = []
        kept = [name for name in self.left_out if there.pop(name.lower(), None) is not None]
        if kept:
            found.append(f"the replica still has columns that the rules leave out: {', '.join(kept)}")
        if self.changed:
            found.append(f"masked or cast by the rules, and not compared: {', '.join(self.changed)}")
        for name in self.added:
            there.pop(name.lower(), None)
        return found


@dataclass(frozen=True, slots=True)
class Column:
    """A column that both sides have."""

    source: str
    replica: str
    form: Form
    type: sa.types.TypeEngine[Any]
    """The source's type."""
    is_text: bool
    """Whether it is text in the replica."""


@dataclass(frozen=True, slots=True)
class Matched:
    columns: Sequence[Column] = ()
    key: Sequence[int] = ()
    """Indexes in `columns`; empty: rows cannot be identified."""
    lacking: Sequence[str] = ()
    """Columns of the source that the replica lacks."""
    notes: Sequence[str] = ()
    """Remarks about columns that are not differences of rows."""
    leaving: Leaving = field(default_factory=Leaving)


def match(
    table: SourceTable, schema: StructType, kept_by: tuple[str, ...] | None, plans: ColumnPlans | None
) -> Matched:
    """Match the columns of `table` with a replica of this schema. `kept_by`: the replica's key, None: as the
    source's; `plans`: the table's column rules. Raises TooDifferent."""
    there = {each.name.lower(): each for each in schema.fields}
    leaving = Leaving.of(plans, table.columns)
    if kept_by is not None:
        kept_by = leaving.source_names(kept_by)
    key = table.key if kept_by is None else kept_by
    is_key = {name.lower() for name in key}
    columns, lacking = [], []
    for name, type_ in table.columns.items():
        leaves_as = leaving.name_of(name)
        if leaves_as is None:
            continue
        spark = there.pop(leaves_as.lower(), None)
        if spark is None:
            lacking.append(name)
        elif name not in leaving.changed:
            is_text = isinstance(spark.dataType, StringType)
            # A key's texts are compared unchanged, because both sides sort by them.
            source_type = _TEXT if is_text and name.lower() in is_key else type_
            columns.append(Column(name, spark.name, form_of(source_type, spark.dataType), type_, is_text))
    notes = list(leaving.notes(there))
    if lacking:
        notes.append(f"the replica has no column {', '.join(lacking)}")
    if there:
        notes.append(f"the source has no column {', '.join(each.name for each in there.values())} (any more)")
    if kept_by is not None and set(map(str.lower, kept_by)) != {name.lower() for name in table.key}:
        notes.append(f"the replica's key is {_list(kept_by)}, the source's {_list(table.key)}")
    return Matched(columns, _places(key, columns, leaving), lacking, notes, leaving)


def _places(key: Sequence[str], columns: Sequence[Column], leaving: Leaving) -> Sequence[int]:
    places = {column.source.lower(): place for place, column in enumerate(columns)}
    missing = [name for name in key if name.lower() not in places]
    changed = [name for name in missing if name.lower() in map(str.lower, leaving.changed)]
    if changed:
        raise TooDifferent(
            f"the column rules mask or cast the key column {changed[0]}: rows cannot be found on both sides"
        )
    if missing:
        raise TooDifferent(f"the key column {missing[0]} is not on both sides")
    if not columns:
        raise TooDifferent("both sides have no column in common")
    return [places[name.lower()] for name in key]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
