"""What a table's rows look like behind a statement, where that is certain without a look at the table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from handlers.api import Change
from handlers.mysql.ddl import (
    AddColumn,
    Column,
    DropColumn,
    ModifyColumn,
    Operation,
    RenameColumn,
    StatementError,
    TableName,
    TruncateTable,
    parse,
)
from handlers.mysql.ddl.rules import DDLRules
from handlers.mysql.types import read_type
from handlers.spark.ddl.conversions import can_widen
from handlers.spark.log.statement import Statement, columns_of
from handlers.spark.rows.added import Mode, log_schema, reserved_names
from handlers.spark.rows.column_types import column_type, spark_name
from handlers.spark.rows.shape import Shape

__all__ = ["Foreseen"]

_SPELLED = ("time", "set", "binary")
"""Values of these may change though Spark's type does not."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Of one table of a replica or history."""

    own: TableName
    rules: DDLRules
    overrides: Mapping[str, pa.DataType]
    mode: Mode
    prefix: str

    def statement(self, change: Change, shape: Shape, topics: Sequence[str]) -> Statement | None:
        """The change as an entry of the log, where `after` knows. `topics`: `Marks.names`."""
        after = self.after(change, shape)
        if after is None:
            return None
        return Statement(
            change.op,
            change.sql,
            change.source_time_ms,
            change.topic,
            change.partition,
            change.offset,
            change.index,
            tuple(topics),
            shape.key,
            after.key,
            columns_of(log_schema(after, mode=self.mode, prefix=self.prefix)),
        )

    def after(self, change: Change, shape: Shape) -> Shape | None:
        """The shape of rows that come behind a `ddl` or `truncate` change; None: only the table tells, or the
        statement is about more than this table's columns and rows, or its values may refuse it."""
        if change.op == "truncate":
            return shape if self.rules.truncate else None
        try:
            operations = parse(change.sql or "", self.own.database)
        except StatementError:
            return None
        kinds = {type(one) for one in operations}
        if not operations or any(one.table != self.own or self.rules.switch_off(one) for one in operations):
            return None
        if len(kinds) > 1 or (kinds == {RenameColumn} and len(operations) > 1):
            return None  # names that come, go and are swapped in one statement
        fields: list[pa.Field] | None = list(shape.schema)
        for operation in operations:
            fields = None if fields is None else self._followed(operation, fields, shape.key)
        return None if not fields else Shape(pa.schema(fields), shape.key)

    def _followed(
        self, operation: Operation, fields: list[pa.Field], key: Collection[str]
    ) -> list[pa.Field] | None:
        match operation:
            case TruncateTable():
                return fields
            case AddColumn(column=column, after=after):
                return self._added(column, after, fields)
            case DropColumn(name=name):
                return None if _is_in(key, name) else [one for one in fields if not _is(one, name)]
            case RenameColumn(name=name, to=new):
                return None if _is_in(key, name) else self._renamed(name, new, fields)
            case ModifyColumn(column=column):
                return None if _is_in(key, column.name) else self._retyped(column, fields)
        return None

    def _added(self, column: Column, after: str | None, fields: list[pa.Field]) -> list[pa.Field] | None:
        # A table may have kept a column that the source has dropped.
        may_be_there = self.mode == "history" or not self.rules.drop_columns
        if may_be_there or _place(fields, column.name) is not None or self._is_reserved(column.name):
            return None
        place = len(fields) if after is None else 0
        if after:
            found = _place(fields, after)
            if found is None:
                return None
            place = found + 1
        return [*fields[:place], pa.field(column.name, self._type(column)), *fields[place:]]

    def _renamed(self, name: str, new: str, fields: list[pa.Field]) -> list[pa.Field] | None:
        place = _place(fields, name)
        if place is None or _place(fields, new) is not None or self._is_reserved(new):
            return None
        if name in self.overrides or new in self.overrides or self.mode == "history":
            return None
        return [*fields[:place], pa.field(new, fields[place].type), *fields[place + 1 :]]

    def _retyped(self, column: Column, fields: list[pa.Field]) -> list[pa.Field] | None:
        place = _place(fields, column.name)
        if place is None or read_type(column.type).name in _SPELLED:
            return None
        old, new = fields[place], self._type(column)
        if old.type != new and not can_widen(spark_name(old.type), spark_name(new)):
            return None  # values are looked at, and may refuse it
        return [*fields[:place], pa.field(old.name, new), *fields[place + 1 :]]

    def _is_reserved(self, name: str) -> bool:
        return name.lower() in reserved_names(self.mode, self.prefix)

    def _type(self, column: Column) -> pa.DataType:
        return self.overrides.get(column.name, column_type(column.type).arrow)


def _is(field: pa.Field, name: str) -> bool:
    """Spark's names have no case, as MySQL's."""
    return bool(field.name.casefold() == name.casefold())


def _is_in(names: Collection[str], name: str) -> bool:
    return name.casefold() in {one.casefold() for one in names}


def _place(fields: list[pa.Field], name: str) -> int | None:
    return next((place for place, field in enumerate(fields) if _is(field, name)), None)
