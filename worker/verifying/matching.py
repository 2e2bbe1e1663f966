"""Which columns of a source's table are which of its replica, and by which of them a row is found."""

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
    """What of a table is in its replica by the rules."""

    names: dict[str, str] = field(default_factory=dict)
    """Column of the source -> its name in the replica, of those that leave."""
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Columns that are masked or cast: their values are not the source's."""
    added: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plans: ColumnPlans | None, columns: Iterable[str]) -> Leaving:
        """`plans`: None without rules."""
        if plans is None:
            return cls({name: name for name in columns})
        made = cls(added=list(plans.added))
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
        """None: it does not leave."""
        return self.names.get(name)

    def source_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """These of the replica as the source calls them."""
        back = {to.lower(): name for name, to in self.names.items()}
        return tuple(back.get(name.lower(), name) for name in names)

    def notes(self, there: dict[str, Any]) -> list[str]:
        """What is told of the rules; takes the columns that they explain out of `there`, the replica's (by
        their names in lower case) that were not found in the source."""
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
    """The source's."""
    is_text: bool
    """In the replica."""


@dataclass(frozen=True, slots=True)
class Matched:
    columns: Sequence[Column] = ()
    key: Sequence[int] = ()
    """Places among `columns`; none: rows cannot be told apart."""
    lacking: Sequence[str] = ()
    """Columns of the source that the replica has not."""
    notes: Sequence[str] = ()
    """What is told of columns, and is no difference of rows."""
    leaving: Leaving = field(default_factory=Leaving)


def match(
    table: SourceTable, schema: StructType, kept_by: tuple[str, ...] | None, plans: ColumnPlans | None
) -> Matched:
    """The columns of `table` in a replica of this schema. `kept_by`: the replica's own key, None: as the
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
            # A key's texts are compared as they are: by them both sides sort.
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
