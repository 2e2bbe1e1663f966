"""Values for existing rows when a statement changes columns: defaults, expressions, numbers, other types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema

from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.ddl.values import default_value, formula_of
from handlers.mysql.types import read_type
from handlers.spark.ddl.target import find
from handlers.spark.iceberg.columns import arrow_schema, arrow_type, fitted_to
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.iceberg.matching import key_tuples
from handlers.spark.rows.column_types import column_type
from handlers.spark.rows.conversions import array_of, fitting
from handlers.spark.rows.shape import TIME

_log = get_logger("handlers.spark")
Values = Callable[[Any, pa.Table], Any]
"""Gets a file and its rows with their present columns. Returns one column."""


@dataclass(slots=True)
class Filling:
    """The new values of one table's rows, by the ids of its columns."""

    commit: TableCommit
    prefix: str
    is_history: bool
    """Then only current versions get values of new columns: they do not apply to past ones."""
    time_ms: int
    """When the source ran the statement, milliseconds since 1970."""
    ends: bool = False
    """Whether the current versions of a history end."""
    _values: dict[int, Values] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self._values and not self.ends

    def add(self, own: Any, column: ddl.Column, override: pa.DataType | None, key: Sequence[str]) -> None:
        """Fill a new column (`own`) as the source did."""
        arrow, table = arrow_type(own.field_type), str(self.commit.ref)
        default = column.default
        if column.numbered:
            if (numbers := self._numbers(key)) is None:
                _log.warning("ddl_rows_not_numbered", table=table, column=own.name)
                return
            names, number_of = numbers
            self._values[own.field_id] = lambda _, rows: pa.array(
                [number_of.get(each) for each in key_tuples(rows, names)], arrow
            )
        elif column.generated is not None:
            formula = formula_of(column)
            there = [each.name for each in self.commit.schema.fields]
            if formula is None or any(find(there, each) is None for each in formula.columns):
                _log.warning("ddl_rows_not_computed", table=table, column=own.name)
                return
            told = {each: find(there, each) or each for each in formula.columns}
            self._values[own.field_id] = lambda _, rows: pa.array(
                [
                    formula.value(dict(zip(told, each, strict=True)))
                    for each in key_tuples(rows, list(told.values()))
                ],
                arrow,
            )
        elif (value := default_value(column, self.time_ms)) is not None:
            kind = column_type(column.type) if override is None else fitting(override)
            [kept] = array_of([value], kind).cast(arrow)
            self._values[own.field_id] = lambda _, rows: pa.repeat(kept, len(rows))
        elif default is not None and default.kind not in ("null", "text", "number"):
            _log.warning("ddl_default_not_known", table=table, column=own.name, default=default.text)

    def _numbers(self, key: Sequence[str]) -> tuple[list[str], dict[Any, int]] | None:
        """Number the rows from 1 in the order of the primary key, as InnoDB does. None if it has no known
        order."""
        fields = {each.name: each for each in self.commit.schema.fields}
        names = [own for own in (find(fields, each) for each in key) if own is not None]
        kinds = [arrow_type(fields[each].field_type) for each in names]
        if not names or len(names) < len(key) or any(map(_is_text, kinds)):
            return None
        needed = [*names, *([f"{self.prefix}current"] if self.is_history else [])]
        found: list[tuple[Any, ...]] = []
        for file in self.commit.files(AlwaysTrue()):
            rows = self.commit.rows(file, self.commit.schema.select(*needed))
            rows = rows.filter(rows.column(needed[-1])) if self.is_history else rows
            found += key_tuples(rows, names)
        return names, {each: number for number, each in enumerate(sorted(found), 1)}

    def convert(self, own: Any, was: Any, source_type: str, *, is_respelled: bool) -> None:
        """Give a column the values of another one (`was`), in its type. `is_respelled`: of the same type."""
        labels = read_type(source_type).labels
        new = arrow_type(own.field_type)

        def values(file: Any, rows: pa.Table) -> Any:
            there = rows.column(own.name)
            if not is_respelled:
                there = self.commit.rows(file, Schema(was)).cast(arrow_schema(Schema(was)))
                return _cast(there, own.name, new)
            return pa.array([_in_order(each, labels) for each in there.to_pylist()], new)

        self._values[own.field_id] = values

    def rows(self, file: Any) -> pa.Table:
        """Return a file's rows with their new values. Raises ArrowInvalid for one that does not fit."""
        schema = self.commit.schema
        rows = self.commit.rows(file, schema).cast(arrow_schema(schema))
        current = rows.column(f"{self.prefix}current") if self.is_history else None
        converted = rows
        for place, column in enumerate(schema.fields):
            if (values := self._values.get(column.field_id)) is not None:
                filled = values(file, rows)
                if current is not None and rows.column(place).null_count == len(rows):
                    filled = pc.if_else(current, filled, pa.nulls(len(rows), filled.type))
                converted = converted.set_column(place, rows.schema.field(place), filled)
        return self._ended(converted) if self.ends else converted

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


def can_cast(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether `Filling.convert` knows MySQL's values in the new type."""
    types = pa.types
    if types.is_integer(new) or types.is_decimal(new) or types.is_string(new):
        return bool(types.is_integer(old) or types.is_decimal(old))
    return bool(types.is_date(old) and types.is_timestamp(new) and new.tz is None)


def _cast(rows: pa.Table, name: str, new: pa.DataType) -> Any:
    [column] = rows.columns
    if pa.types.is_string(new):  # Arrow writes small decimals with an exponent
        form = "f" if pa.types.is_decimal(column.type) else "d"
        return pa.array([None if each is None else format(each, form) for each in column.to_pylist()], new)
    return fitted_to(rows.rename_columns([name]), pa.schema([pa.field(name, new)])).column(0)


def _in_order(value: Collection[str] | None, labels: Sequence[str]) -> list[str] | None:
    """Return a set's members in the order of the type's list. Those that it does not contain are dropped."""
    return None if value is None else [each for each in labels if each in value]


def _is_text(arrow: pa.DataType) -> bool:
    types = pa.types
    return not (types.is_integer(arrow) or types.is_decimal(arrow) or types.is_temporal(arrow))
