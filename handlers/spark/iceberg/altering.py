"""Changes of one Iceberg table's columns and rows by a statement, prepared in one commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import AlwaysTrue

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.types import read_type
from handlers.spark.ddl.target import find
from handlers.spark.delta.arrow_rows import holds_all
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.columns import (
    arrow_type,
    can_evolve,
    can_promote,
    evolve,
    iceberg_type,
    in_table,
    widened,
)
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.iceberg.filling import Filling, can_cast
from handlers.spark.rows.column_types import column_type, spark_name
from handlers.spark.rows.shape import HISTORY
from handlers.spark.rows.spark_types import can_widen

_log = get_logger("handlers.spark")
_SPELLED = ("time", "binary")
"""Types whose values may change although Iceberg's type does not. How they change is not known here."""


@dataclass(slots=True)
class Altering:
    """For the operations of one statement on one table."""

    commit: TableCommit
    overrides: Mapping[str, pa.DataType]
    note: CommitNote
    filling: Filling
    key: Sequence[str]
    """The table's key before the statement."""
    _replaced: list[tuple[Any, str]] = field(default_factory=list)
    """Columns whose values are converted, and the source's new types."""
    _moves: list[tuple[str, str | None]] = field(default_factory=list)
    """Columns, and after which each comes. Empty: first."""
    _is_emptied: bool = False

    def apply(self, operations: Sequence[ddl.Operation]) -> bool:
        """Prepare the operations. Returns whether they change anything. Raises Rejected for what cannot be
        done here."""
        before = self.commit.schema
        try:
            for kind, group in groupby(operations, type):
                for some in [[one] for one in group] if kind is ddl.RenameColumn else [list(group)]:
                    self._apply(kind, some)
            has_written = self._write()
        except (ValueError, ValidationError) as error:  # ArrowInvalid is one: a value does not fit
            raise Rejected(f"{operations[0].table} cannot be changed like its source: {error}") from error
        return has_written or before != self.commit.schema

    def widen(self, wanted: pa.Schema) -> bool:
        """Prepare what the table needs to have rows with these columns. Returns whether it needs anything.
        Raises IncompatibleColumn."""
        there = {each.name.casefold(): each for each in self.commit.schema.fields}
        has_changed = False
        with self.commit.transaction.update_schema(case_sensitive=False) as update:
            for each in wanted:
                own = there.get(each.name.casefold())
                if own is None:
                    update.add_column((each.name,), iceberg_type(each.type, itertools.count(1)))
                    has_changed = True
                    continue
                old = arrow_type(own.field_type)
                new = widened(self.commit.ref, old, each.type, own.name)
                has_changed |= old != new
                if can_evolve(old, new):
                    evolve(update, old, new, (own.name,))
                else:
                    self._replace(update, own, new, "")
        self._move()
        if has_changed:
            self._write()
            _log.info("iceberg_columns_changed", table=str(self.commit.ref), columns=wanted.names)
        return has_changed

    def _apply(self, kind: type[Any], group: Sequence[Any]) -> None:
        if kind is ddl.TruncateTable or kind is ddl.DropTable:
            self._is_emptied, self.filling.ends = True, self.filling.is_history
            return
        before = {each.field_id for each in self.commit.schema.fields}
        with self.commit.transaction.update_schema(case_sensitive=False) as update:
            for one in group:
                match one:
                    case ddl.AddColumn():
                        self._add(update, one)
                    case ddl.DropColumn(name=name) if not self.filling.is_history:
                        self._drop(update, name)
                    case ddl.RenameColumn(name=name, to=new):
                        self._rename(update, name, new)
                    case ddl.ModifyColumn():
                        self._modify(update, one)
        self._move()
        for one in group if kind is ddl.AddColumn else ():
            own = self._own(one.column.name)
            if own is not None and own.field_id not in before:
                override = self.overrides.get(one.column.name.lower())
                self.filling.add(own, one.column, override, self.key)

    def _own(self, name: str) -> Any:
        """Return the table's column of this name, None if it has none."""
        names = {each.name: each for each in self.commit.schema.fields}
        own = find(names, name)
        return None if own is None else names[own]

    def _add(self, update: Any, one: ddl.AddColumn) -> None:
        name = one.column.name
        if self._own(name) is not None:
            return  # rows have told of it before, or a column was kept
        update.add_column((name,), iceberg_type(type_of(one.column, self.overrides), itertools.count(1)))
        added = {f"{self.filling.prefix}{each}" for each in HISTORY} if self.filling.is_history else set()
        sources = [each.name for each in self.commit.schema.fields if each.name not in added]
        after = sources[-1] if one.after is None and added and sources else one.after
        self._moves.append((name, after))

    def _drop(self, update: Any, name: str) -> None:
        if (own := self._own(name)) is None:
            return
        if len(self.commit.schema.fields) == 1:
            _log.warning("ddl_columns_not_dropped", table=str(self.commit.ref), columns=[own.name])
            return
        update.delete_column((own.name,))

    def _rename(self, update: Any, name: str, new: str) -> None:
        own, taken = self._own(name), self._own(new)
        if own is None or own.name == new:
            return
        if taken is not None and taken.field_id != own.field_id:
            raise ValueError(f"it has a column {taken.name!r}, so {own.name!r} cannot get this name")
        update.rename_column((own.name,), new)

    def _modify(self, update: Any, one: ddl.ModifyColumn) -> None:
        own, source_type = self._own(one.column.name), one.column.type
        if own is None:
            return
        old, new = arrow_type(own.field_type), type_of(one.column, self.overrides)
        kind = "" if one.column.name.lower() in self.overrides else read_type(source_type).name
        is_wider = can_widen(spark_name(old), spark_name(new))
        if (old == new and kind in _SPELLED) or not (_keeps(old, new) or is_wider or can_cast(old, new)):
            raise ValueError(
                f"column {own.name} is {old} in the Iceberg table, and its values cannot become those of "
                f"{source_type} here. Change the column by hand, or load the table again"
            )
        if old == new:
            if kind == "set":
                self._replaced.append((own, source_type))
        elif can_promote(old, new):
            update.update_column((own.name,), iceberg_type(new, itertools.count(1)))
        elif not _keeps(old, new):
            self._replace(update, own, new, source_type)
        self._moves.append((own.name, one.after))

    def _replace(self, update: Any, own: Any, new: pa.DataType, source_type: str) -> None:
        names = [each.name for each in self.commit.schema.fields]
        place = names.index(own.name)
        update.delete_column((own.name,))
        update.add_column((own.name,), iceberg_type(new, itertools.count(1)))
        self._moves.append((own.name, names[place - 1] if place else ""))
        self._replaced.append((own, source_type))

    def _move(self) -> None:
        """Move columns. PyIceberg does it later only for a column that replaces one of its name."""
        with self.commit.transaction.update_schema(case_sensitive=False) as update:
            for name, after in self._moves:
                if after == "":
                    update.move_first((name,))
                elif after is not None:
                    update.move_after((name,), (after,))
        self._moves.clear()

    def _write(self) -> bool:
        """Write the rows that change. Returns whether there are any."""
        for was, source_type in self._replaced:
            if (own := self._own(was.name)) is not None:
                is_respelled = own.field_id == was.field_id
                self.filling.convert(own, was, source_type, is_respelled=is_respelled)
        if not self._is_emptied and self.filling.is_empty:
            return False
        files = self.commit.files(AlwaysTrue())
        is_written = self.filling.is_history or not self._is_emptied
        rows: Iterator[pa.Table] = map(self.filling.rows, files if is_written else ())
        if files:
            self.commit.replace(files, rows, self.note)
        return bool(files)


def type_of(column: ddl.Column, overrides: Mapping[str, pa.DataType]) -> pa.DataType:
    """Return the type in which a table keeps a source's column."""
    return in_table(overrides.get(column.name.lower(), column_type(column.type).arrow))


def _keeps(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether the values of a column stay as they are when the source's type changes."""
    return old == new or can_promote(old, new) or (not pa.types.is_floating(old) and holds_all(old, new))
