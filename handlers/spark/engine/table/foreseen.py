"""Predicts the shape of a table's rows after a statement, if it is certain without looking at the table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructField

from handlers.api import Change
from handlers.mysql import ddl
from handlers.mysql.ddl.rules import DDLRules
from handlers.spark.delta.evolving import TableState, spark_schema
from handlers.spark.delta.own_commit import OF_COLUMNS
from handlers.spark.log.segment_file import Statement, columns_of
from handlers.spark.rows.column_types import column_type, may_change_alone, spark_name
from handlers.spark.rows.shape import Mode, Shape, log_schema, reserved_names
from handlers.spark.rows.spark_types import can_widen

_PLAIN = OF_COLUMNS | {"delta.columnMapping.nested.ids"}
"""Column metadata that prevents no statement."""


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table whose columns and types were seen to equal those of a shape. (A history may have more: it keeps
    columns that the source dropped.) No declaration on these columns can refuse a statement."""

    shape: Shape
    fixed: frozenset[str]
    """Lower-case columns that no statement changes without a look at the table: its partition columns."""

    @classmethod
    def of(
        cls, table: TableState | None, shape: Shape, *, mode: Mode, prefix: str, partition_by: Sequence[str]
    ) -> SeenTable | None:
        """Return None if the table differs. `table`: None if the first rows will create it. `partition_by`:
        of new tables."""
        partitions = tuple(partition_by) if table is None else (*partition_by, *table.partitions)
        seen = cls(shape, frozenset(name.casefold() for name in partitions))
        if table is None:
            return seen
        declared = any(name.startswith("delta.constraints.") for name in table.properties)
        if declared or any(
            not field.nullable or set(field.metadata or ()) - _PLAIN for field in table.columns.fields
        ):
            return None
        added = reserved_names(mode, prefix) if mode == "history" else ()
        there = {_type_of(field) for field in table.columns.fields if field.name.lower() not in added}
        wanted = {_type_of(field) for field in spark_schema(shape.schema).fields}
        is_it = wanted <= there if mode == "history" else wanted == there
        return seen if is_it else None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Predictions for one table of a replica or history."""

    own: ddl.TableName
    rules: DDLRules
    overrides: Mapping[str, pa.DataType]
    mode: Mode
    prefix: str
    fixed: Collection[str] | None = ()
    """As in SeenTable. None if the table's columns are unknown: then only a truncate is predicted."""

    def statement(self, change: Change, shape: Shape, topics: Sequence[str]) -> Statement | None:
        """Return the change as an entry of the log, if `after` is known. `topics`: `Marks.names`."""
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
        """Return the shape of rows after a `ddl` or `truncate` change. None if only the table knows it, if
        the statement concerns more than this table's columns and rows, or if values may refuse it."""
        if change.op == "truncate":
            return shape if self.rules.truncate else None
        try:
            operations = ddl.parse(change.sql or "", self.own.database)
        except ddl.StatementError:
            return None
        kinds = {type(one) for one in operations}
        names = (name for one in operations for name in _columns_of(one))
        is_fixed = self.fixed is None or any(_is_in(self.fixed, name) for name in names)
        if kinds != {ddl.TruncateTable} and is_fixed:
            return None
        if not operations or any(one.table != self.own or self.rules.switch_off(one) for one in operations):
            return None
        if len(kinds) > 1 or (kinds == {ddl.RenameColumn} and len(operations) > 1):
            return None  # names may be added, dropped and swapped in one statement
        fields: list[pa.Field] | None = list(shape.schema)
        for operation in operations:
            fields = None if fields is None else self._followed(operation, fields, shape.key)
        return None if not fields else Shape(pa.schema(fields), shape.key)

    def _followed(
        self, operation: ddl.Operation, fields: list[pa.Field], key: Collection[str]
    ) -> list[pa.Field] | None:
        match operation:
            case ddl.TruncateTable():
                return fields
            case ddl.AddColumn(column=column, after=after):
                return self._added(column, after, fields)
            case ddl.DropColumn(name=name):
                return None if _is_in(key, name) else [one for one in fields if not _is(one, name)]
            case ddl.RenameColumn(name=name, to=new):
                return None if _is_in(key, name) else self._renamed(name, new, fields)
            case ddl.ModifyColumn(column=column):
                return None if _is_in(key, column.name) else self._retyped(column, fields)
        return None

    def _added(self, column: ddl.Column, after: str | None, fields: list[pa.Field]) -> list[pa.Field] | None:
        # A table may have kept a column that the source dropped.
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
        if {name.lower(), new.lower()} & self.overrides.keys() or self.mode == "history":
            return None
        return [*fields[:place], pa.field(new, fields[place].type), *fields[place + 1 :]]

    def _retyped(self, column: ddl.Column, fields: list[pa.Field]) -> list[pa.Field] | None:
        place = _place(fields, column.name)
        if place is None or may_change_alone(column.type):
            return None
        old, new = fields[place], self._type(column)
        if old.type != new and not can_widen(spark_name(old.type), spark_name(new)):
            return None  # the values must be checked, and may refuse it
        return [*fields[:place], pa.field(old.name, new), *fields[place + 1 :]]

    def _is_reserved(self, name: str) -> bool:
        return name.lower() in reserved_names(self.mode, self.prefix)

    def _type(self, column: ddl.Column) -> pa.DataType:
        return self.overrides.get(column.name.lower(), column_type(column.type).arrow)


def _columns_of(operation: ddl.Operation) -> tuple[str, ...]:
    match operation:
        case ddl.AddColumn(column=column) | ddl.ModifyColumn(column=column):
            return (column.name,)
        case ddl.DropColumn(name=name):
            return (name,)
        case ddl.RenameColumn(name=name, to=new):
            return (name, new)
    return ()


def _type_of(field: StructField) -> tuple[str, str]:
    return field.name.casefold(), field.dataType.simpleString()


def _is(field: pa.Field, name: str) -> bool:
    """Neither Spark nor MySQL distinguishes case in names."""
    return bool(field.name.casefold() == name.casefold())


def _is_in(names: Collection[str], name: str) -> bool:
    return name.casefold() in {one.casefold() for one in names}


def _place(fields: list[pa.Field], name: str) -> int | None:
    return next((place for place, field in enumerate(fields) if _is(field, name)), None)
