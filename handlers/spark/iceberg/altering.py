"""Changes of one Iceberg table's columns and rows by a statement, prepared in one commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.ddl.values import default_value
from handlers.mysql.types import read_type
from handlers.spark.ddl.target import find
from handlers.spark.delta.arrow_rows import holds_all
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.columns import arrow_schema, arrow_type, can_promote, iceberg_type, in_table
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.rows.column_types import column_type
from handlers.spark.rows.conversions import array_of, fitting
from handlers.spark.rows.shape import HISTORY, TIME

_log = get_logger("handlers.spark")
_SPELLED = ("time", "set", "binary")
"""Types whose values may change although Iceberg's type does not."""
Convert = Callable[[pa.Table], pa.ChunkedArray]


@dataclass(slots=True)
class Altering:
    """For the operations of one statement on one table."""

    commit: TableCommit
    overrides: Mapping[str, pa.DataType]
    mode: str
    prefix: str
    time_ms: int
    """When the source ran the statement, milliseconds since 1970."""
    note: CommitNote
    _filled: dict[int, pa.Array] = field(default_factory=dict)
    """Id of a new column -> one value, for all rows (of a history: the current ones)."""
    _replaced: list[Any] = field(default_factory=list)
    """Columns that others of their names replace, with converted values."""
    _has_changed: bool = False
    _is_emptied: bool = False

    def apply(self, operations: Sequence[ddl.Operation]) -> bool:
        """Prepare the operations. Returns whether they change anything. Raises Rejected for what Iceberg
        cannot do."""
        try:
            for kind, group in groupby(operations, type):
                self._apply(kind, list(group))
            self._write()
        except (ValueError, ValidationError) as error:  # ArrowInvalid is one: a value does not fit
            raise Rejected(f"{operations[0].table} cannot be changed like its source: {error}") from error
        return self._has_changed

    def _apply(self, kind: type[Any], group: Sequence[Any]) -> None:
        if kind is ddl.TruncateTable or kind is ddl.DropTable:
            self._is_emptied = True
            return
        if kind is ddl.ChangeKey:
            return
        before = self.commit.schema
        with self.commit.transaction.update_schema(case_sensitive=False) as update:
            for one in group:
                match one:
                    case ddl.AddColumn():
                        self._add(update, one)
                    case ddl.DropColumn(name=name) if self.mode != "history":
                        self._drop(update, name)
                    case ddl.RenameColumn(name=name, to=new):
                        self._rename(update, name, new, [each.name for each in group])
                    case ddl.ModifyColumn():
                        self._modify(update, one)
        self._has_changed |= before != self.commit.schema
        for one in group if kind is ddl.AddColumn else ():
            self._fill(one.column, before)

    # ---- columns

    def _own(self, name: str) -> Any:
        """Return the table's column of this name, None if it has none."""
        names = {each.name: each for each in self.commit.schema.fields}
        own = find(names, name)
        return None if own is None else names[own]

    def _type(self, column: ddl.Column) -> pa.DataType:
        return in_table(self.overrides.get(column.name.lower(), column_type(column.type).arrow))

    def _add(self, update: Any, one: ddl.AddColumn) -> None:
        name = one.column.name
        if self._own(name) is not None:
            return  # rows have told of it before, or a column was kept
        update.add_column((name,), iceberg_type(self._type(one.column), itertools.count(1)))
        added = {f"{self.prefix}{each}" for each in HISTORY} if self.mode == "history" else set()
        sources = [each.name for each in self.commit.schema.fields if each.name not in added]
        _move(update, name, one.after, default=sources[-1] if added and sources else None)

    def _drop(self, update: Any, name: str) -> None:
        if (own := self._own(name)) is None:
            return
        if len(self.commit.schema.fields) == 1:
            _log.warning("ddl_columns_not_dropped", table=str(self.commit.ref), columns=[own.name])
            return
        update.delete_column((own.name,))

    def _rename(self, update: Any, name: str, new: str, leaving: Sequence[str]) -> None:
        own, taken = self._own(name), self._own(new)
        if own is None or own.name == new:
            return
        if taken is not None and taken is not own and find(leaving, new) is None:
            raise ValueError(f"it has a column {taken.name!r}, so {own.name!r} cannot get this name")
        update.rename_column((own.name,), new)

    def _modify(self, update: Any, one: ddl.ModifyColumn) -> None:
        own = self._own(one.column.name)
        if own is None:
            return
        old, new = arrow_type(own.field_type), self._type(one.column)
        if old == new:
            if read_type(one.column.type).name in _SPELLED and one.column.name.lower() not in self.overrides:
                raise ValueError(_no_conversion(own.name, old, one.column.type))
        elif can_promote(old, new):
            update.update_column((own.name,), iceberg_type(new, itertools.count(1)))
        elif pa.types.is_floating(old) or not holds_all(old, new):
            if not _can_cast(old, new):
                raise ValueError(_no_conversion(own.name, old, one.column.type))
            self._replace(update, own, new)
        if one.after is not None:
            _move(update, own.name, one.after)

    def _replace(self, update: Any, own: Any, new: pa.DataType) -> None:
        names = [each.name for each in self.commit.schema.fields]
        place = names.index(own.name)
        update.delete_column((own.name,))
        update.add_column((own.name,), iceberg_type(new, itertools.count(1)))
        _move(update, own.name, names[place - 1] if place else "")
        self._replaced.append(own)

    # ---- rows

    def _fill(self, column: ddl.Column, before: Schema) -> None:
        own = self._own(column.name)
        if own is None or any(each.field_id == own.field_id for each in before.fields):
            return
        table = str(self.commit.ref)
        if column.generated is not None or column.numbered:
            _log.warning("ddl_rows_not_computed", table=table, column=column.name)
        elif (value := default_value(column, self.time_ms)) is not None:
            kept = self.overrides.get(column.name.lower())
            found = array_of([value], column_type(column.type) if kept is None else fitting(kept))
            self._filled[own.field_id] = found.cast(arrow_type(own.field_type))
        elif column.default is not None and column.default.kind not in ("null", "text", "number"):
            _log.warning(
                "ddl_default_not_known", table=table, column=column.name, default=column.default.text
            )

    def _write(self) -> None:
        """Write the rows that change."""
        converted = {self._own(each.name).field_id: each for each in self._replaced}
        if not (self._is_emptied or self._filled or converted):
            return
        files = self.commit.files(AlwaysTrue())
        if not files:
            return
        rows: Iterator[pa.Table] = iter(())
        if not self._is_emptied or self.mode == "history":
            rows = (self._rows(each, converted) for each in files)
        self.commit.replace(files, rows, self.note)
        self._has_changed = True

    def _rows(self, file: Any, converted: Mapping[int, Any]) -> pa.Table:
        schema = self.commit.schema
        rows = self.commit.rows(file, schema).cast(arrow_schema(schema))
        is_history = self.mode == "history"
        current = rows.column(f"{self.prefix}current") if is_history else None
        for place, column in enumerate(schema.fields):
            kind, own = rows.schema.field(place), column.field_id
            if own in converted:
                was = self.commit.rows(file, Schema(converted[own])).column(0)
                rows = rows.set_column(
                    place, kind, was.cast(arrow_type(converted[own].field_type)).cast(kind.type)
                )
            elif own in self._filled:
                value = pa.repeat(self._filled[own][0], len(rows))
                kept = value if current is None else pc.if_else(current, value, rows.column(place))
                rows = rows.set_column(place, kind, kept)
        return self._ended(rows) if self._is_emptied else rows

    def _ended(self, rows: pa.Table) -> pa.Table:
        """End the current versions. None ends before it began, even if the source's clock was set back."""
        since, until, current = (f"{self.prefix}{name}" for name in ("valid_from", "valid_to", "current"))
        began = rows.column(since).cast(TIME).cast(pa.int64())
        ends = pc.max_element_wise(began, self.time_ms * 1000).cast(TIME)
        is_current = rows.column(current)
        for name, values in ((until, ends), (current, pa.repeat(False, len(rows)))):
            place = rows.schema.get_field_index(name)
            column = pc.if_else(is_current, values, rows.column(name))
            rows = rows.set_column(place, rows.schema.field(place), column)
        return rows


def _move(update: Any, name: str, after: str | None, default: str | None = None) -> None:
    if after == "":
        update.move_first((name,))
    elif (after or default) is not None:
        update.move_after((name,), after or default)


def _can_cast(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Arrow's cast keeps each value, or refuses it."""
    types = pa.types
    is_exact = types.is_integer(old) or types.is_decimal(old)
    if is_exact and (types.is_integer(new) or types.is_decimal(new)):
        return True
    return (types.is_integer(old) and types.is_string(new)) or (
        types.is_date(old) and types.is_timestamp(new) and new.tz is None
    )


def _no_conversion(name: str, old: pa.DataType, new: str) -> str:
    return (
        f"column {name} is {old} in the Iceberg table, and its values cannot become those of {new} here. "
        "Change the column by hand, or load the table again"
    )
