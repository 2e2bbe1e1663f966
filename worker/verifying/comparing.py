"""Match the columns of a source table and its replica, and compare rows in the order of their key, by
checksums of key ranges."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import islice
from typing import Any

import sqlalchemy as sa
from pyspark.sql.types import StringType, StructType

from worker.column_rules.plan import ColumnPlans
from worker.verifying.forms import Form, form_of
from worker.verifying.source import Row, SourceTable

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
        if (leaves_as := leaving.names.get(name)) is None:
            continue  # it is left out
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


class OutOfOrder(RuntimeError):
    """A side does not follow the order of the key."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs between the sides. Both are in the common form."""

    key: Row
    source: Row | None
    """None: the source has no such row."""
    replica: Row | None


@dataclass(frozen=True, slots=True)
class Range:
    """The rows of one range of keys."""

    source_rows: int
    replica_rows: int
    differences: Sequence[Difference]


def can_be_found(key: Row) -> bool:
    """Whether a query can find a row by this key: not by NULL or NaN."""
    return all(value is not None and value == value for value in key)  # noqa: PLR0124 (NaN)


def digest(*rows: Row) -> bytes:
    """Return a checksum (16 bytes) of rows in the common form."""
    found = hashlib.blake2b(digest_size=16)
    for row in rows:
        found.update(repr(row).encode("utf-8", "surrogatepass"))
    return found.digest()


def ranges(
    source: Iterable[Row], replica: Iterable[Row], key_of: Callable[[Row], Row], chunk: int
) -> Iterator[Range]:
    """Yield the source's rows, `chunk` at a time, each with the replica's rows up to the same key. Both sides
    are in the order of their keys and in the common form. Raises OutOfOrder."""
    left = _checked(source, key_of, "the source")
    right = _checked(replica, key_of, "the replica")
    waiting = next(right, None)
    while rows := list(islice(left, chunk)):
        end = _sortable(key_of(rows[-1]))
        others = []
        while waiting is not None and _sortable(key_of(waiting)) <= end:
            others.append(waiting)
            waiting = next(right, None)
        yield _compared(rows, others, key_of)
    while waiting is not None:
        yield _compared([], [waiting, *islice(right, chunk - 1)], key_of)
        waiting = next(right, None)


def surplus(source: Iterable[Row], replica: Iterable[Row]) -> tuple[Counter[bytes], int, int]:
    """Compare rows without a key as multisets. Return how many more of each digest the source has (negative:
    the replica), and how many rows each side has."""
    more: Counter[bytes] = Counter()
    counts = [0, 0]
    for side, (rows, sign) in enumerate(((source, 1), (replica, -1))):
        for row in rows:
            each = digest(row)
            counts[side] += 1
            if more[each] == -sign:
                del more[each]  # equal numbers of rows are not kept
            else:
                more[each] += sign
    return more, counts[0], counts[1]


def formed(rows: Iterable[Row], reads: Sequence[Callable[[Any], Any]]) -> Iterator[Row]:
    """Yield the rows in the common form. `reads` are the columns' `Form`s for this side."""
    for row in rows:
        try:
            yield tuple(
                [None if value is None else read(value) for read, value in zip(reads, row, strict=True)]
            )
        except (ValueError, TypeError, ArithmeticError):
            yield tuple([_or_as_it_is(read, value) for read, value in zip(reads, row, strict=True)])


def _or_as_it_is(read: Callable[[Any], Any], value: Any) -> Any:
    """Read a value. One that does not fit its column's type equals only itself."""
    try:
        return None if value is None else read(value)
    except (ValueError, TypeError, ArithmeticError):
        return str(value)


def _compared(source: Sequence[Row], replica: Sequence[Row], key_of: Callable[[Row], Row]) -> Range:
    differences: list[Difference] = []
    if digest(*source) != digest(*replica):
        there = {key_of(row): row for row in replica}
        for row in source:
            other = there.pop(key_of(row), None)
            if other != row:
                differences.append(Difference(key_of(row), row, other))
        differences += (Difference(key, None, row) for key, row in there.items())
        if len(replica) != len({key_of(row) for row in replica}):
            differences += _doubles(replica, key_of)
    return Range(len(source), len(replica), differences)


def _doubles(rows: Sequence[Row], key_of: Callable[[Row], Row]) -> Iterator[Difference]:
    """Yield rows with the key of an earlier row."""
    seen: set[Row] = set()
    for row in rows:
        key = key_of(row)
        if key in seen:
            yield Difference(key, None, row)
        seen.add(key)


def _checked(rows: Iterable[Row], key_of: Callable[[Row], Row], side: str) -> Iterator[Row]:
    last: Any = None
    for row in rows:
        key = _sortable(key_of(row))
        if last is not None and key < last:
            raise OutOfOrder(f"{side} is not sorted by the key's values: {key_of(row)!r} comes too late")
        last = key
        yield row


def _sortable(key: Row) -> Row:
    """Return a sort key as both databases sort: texts by bytes, null first."""
    return tuple((value is not None, _comparable(value)) for value in key)


def _comparable(value: Any) -> Any:
    if type(value) is date:  # dates on one side may be times on the other
        return datetime(value.year, value.month, value.day)
    return value.encode() if isinstance(value, str) else value
