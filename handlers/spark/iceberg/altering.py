"""Changes of one Iceberg table's columns and rows, prepared in one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError

from handlers.api import Rejected
from handlers.mysql import ddl
from handlers.mysql.ddl.values import default_value
from handlers.mysql.types import read_type
from handlers.spark.ddl.target import find
from handlers.spark.delta.arrow_rows import holds_all
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.columns import arrow_schema, in_table
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.rows.column_types import column_type
from handlers.spark.rows.conversions import array_of, fitting
from handlers.spark.rows.shape import HISTORY, TIME

_SPELLED = ("time", "set", "binary")
"""Types whose values may change although Iceberg's type does not. How they change is not known here."""


@dataclass(slots=True)
class Altering:
    """For one commit. Columns keep their ids."""

    commit: TableCommit
    overrides: Mapping[str, pa.DataType]
    note: CommitNote
    prefix: str
    is_history: bool
    """Then only current versions get values of new columns: they do not apply to past ones."""
    time_ms: int = 0
    """When the source ran the statement, milliseconds since 1970."""
    _values: dict[str, pa.Scalar] = field(default_factory=dict)
    """New column -> the value of existing rows."""
    _computed: list[str] = field(default_factory=list)
    """New columns whose values in existing rows only the source knows."""
    _is_emptied: bool = False

    def apply(self, steps: Iterable[ddl.Operation | pa.Field]) -> None:
        """Prepare operations of a statement, or columns that rows have. Raises Rejected for what Iceberg, or
        this code, cannot do."""
        before = self.commit.schema
        try:
            for one in steps:
                match one:
                    case ddl.TruncateTable() | ddl.DropTable():
                        self._is_emptied = True
                    case ddl.AddColumn(column=column):
                        self._add(column, one.after)
                    case ddl.DropColumn(name=name) if not self.is_history and self._own(name):
                        with self.commit.transaction.update_schema() as update:
                            update.delete_column((self._own(name),))
                    case ddl.RenameColumn(name=name, to=new):
                        self._rename(name, new)
                    case ddl.ModifyColumn(column=column):
                        self._modify(column, one.after)
                    case pa.Field():
                        self._hold(one.name, in_table(one.type))
            self._write(before)
        except (ValueError, ValidationError) as error:
            raise Rejected(f"{self.commit.ref} cannot be changed like its source: {error}") from error

    def _own(self, name: str) -> str | None:
        """Return the table's spelling of a column, None if it has none."""
        return find((each.name for each in self.commit.schema.fields), name)

    def _hold(self, name: str, wanted: pa.DataType, after: str | None = None) -> None:
        """Add a column, or give it a wider type. `after`: its new place, empty for the first one."""
        own = self._own(name)
        old = None if own is None else arrow_schema(self.commit.schema).field(own).type
        if old is None or not holds_all(old, wanted):
            if not (old is None or pa.types.is_struct(old) or _can_promote(old, wanted)):
                raise ValueError(
                    f"column {own!r} is {old}, which cannot hold values that are kept as {wanted}, and "
                    "Iceberg cannot widen it to that: name the type to keep in `columns`, change the column "
                    "by hand, or give the handler another table"
                )
            with self.commit.transaction.update_schema(case_sensitive=False) as update:
                update.union_by_name(pa.schema([(name, wanted)]))
        if after is not None:
            with self.commit.transaction.update_schema(case_sensitive=False) as update:
                _ = update.move_after((name,), (after,)) if after else update.move_first((name,))

    def _add(self, column: ddl.Column, after: str | None) -> None:
        if self._own(column.name) is not None:
            return  # rows have told of it before, or a column was kept
        if after is None and self.is_history:
            added = {f"{self.prefix}{name}" for name in HISTORY}
            after = [each.name for each in self.commit.schema.fields if each.name not in added][-1]
        override = self.overrides.get(column.name.lower())
        wanted = in_table(column_type(column.type).arrow if override is None else override)
        self._hold(column.name, wanted, after)
        if (value := default_value(column, self.time_ms)) is not None:
            kind = column_type(column.type) if override is None else fitting(override)
            [self._values[column.name]] = array_of([value], kind).cast(wanted)
        elif column.numbered or column.generated or (column.default and column.default.kind == "expression"):
            self._computed += [column.name]

    def _rename(self, name: str, new: str) -> None:
        own, taken = self._own(name), self._own(new)
        if own is None or own == new:
            return
        if taken not in (None, own):
            raise ValueError(f"it has a column {taken!r}, so {own!r} cannot get this name")
        with self.commit.transaction.update_schema() as update:
            update.rename_column((own,), new)
        self._values |= {new: self._values.pop(own)} if own in self._values else {}

    def _modify(self, column: ddl.Column, after: str | None) -> None:
        if (own := self._own(column.name)) is None:
            return
        old = arrow_schema(self.commit.schema).field(own).type
        override = self.overrides.get(column.name.lower())
        new = in_table(column_type(column.type).arrow if override is None else override)
        is_narrower = old != new and holds_all(old, new) and not pa.types.is_integer(new)
        if is_narrower or (old == new and override is None and read_type(column.type).name in _SPELLED):
            raise ValueError(f"the values of {own} may change with its type {column.type}")
        self._hold(own, new, after)

    def _write(self, before: Any) -> None:
        """Write the rows that change: all of them."""
        files = self.commit.files() if self._is_emptied or self._values or self._computed else []
        if files and self._computed and not self._is_emptied:
            raise ValueError(f"only the source knows the values of {self._computed[0]} in rows that exist")
        is_kept = self.is_history or not self._is_emptied
        if files:
            rows = (self._changed(self.commit.rows(file, before), before) for file in files if is_kept)
            self.commit.replace(files, rows, self.note)

    def _changed(self, there: pa.Table, before: Any) -> pa.Table:
        """Return a file's rows with their new values."""
        names = {each.field_id: each.name for each in before.fields}
        is_current = there.column(f"{self.prefix}current") if self.is_history else pa.scalar(True)
        ended = self._ended(there) if self._is_emptied else {}
        columns = []
        for own, wanted in zip(self.commit.schema.fields, arrow_schema(self.commit.schema), strict=True):
            if own.field_id in names:
                columns.append(ended.get(own.name, there.column(names[own.field_id])).cast(wanted.type))
            else:
                null = pa.scalar(None, wanted.type)
                values = pa.repeat(self._values.get(own.name, null), len(there))
                columns.append(pc.if_else(is_current, values, null))
        return pa.table(columns, schema=arrow_schema(self.commit.schema))

    def _ended(self, there: pa.Table) -> dict[str, pa.ChunkedArray]:
        """End the current versions. None ends before it began, even if the source's clock was set back."""
        since, until, current = (f"{self.prefix}{name}" for name in ("valid_from", "valid_to", "current"))
        began = there.column(since).cast(TIME).cast(pa.int64())
        ends = pc.max_element_wise(began, self.time_ms * 1000).cast(TIME)
        kept = there.column(until).cast(TIME)
        no = pa.chunked_array([pa.repeat(False, len(there))])
        return {until: pc.if_else(there.column(current), ends, kept), current: no}


def _can_promote(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether the format can widen a type. PyIceberg also takes a string for a binary.

    https://iceberg.apache.org/spec/#schema-evolution"""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision < new.precision)
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
