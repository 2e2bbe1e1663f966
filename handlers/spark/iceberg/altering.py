"""Changes of one Iceberg table's columns and rows, prepared in one commit. Columns keep their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from sqlglot import transpile

from handlers.api import Rejected
from handlers.mysql import ddl
from handlers.mysql.ddl.values import default_value
from handlers.spark.ddl.conversions import converted
from handlers.spark.delta.arrow_rows import holds_all
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.columns import arrow_schema, in_table
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.rows.column_types import column_type, may_change_alone, spark_name
from handlers.spark.rows.conversions import array_of, fitting
from handlers.spark.rows.shape import TIME
from handlers.spark.table_ref import find

_DROPPED = "binlane: the source has dropped this column"
_IDS = "schema.name-mapping.default"


@dataclass(slots=True)
class Altering:
    commit: TableCommit
    note: CommitNote
    overrides: Mapping[str, pa.DataType]
    history: str | None = None
    """The prefix of a history's own columns. Only current versions get values of new columns."""
    time_ms: int = 0
    """When the source ran the statement, milliseconds since 1970."""
    keeps_dropped: bool = False
    _values: dict[str, pa.Scalar] = field(default_factory=dict)
    """New column -> the value of existing rows."""
    _is_emptied: bool = False

    def apply(self, steps: Iterable[ddl.Operation | pa.Field]) -> None:
        """Prepare operations of a statement, or columns that rows have. Raises Rejected for what Iceberg, or
        this code, cannot do."""
        before = self.commit.schema
        try:
            for one in steps:
                match one:
                    case pa.Field():
                        self._hold(one.name, in_table(one.type))
                    case ddl.AddColumn(column=column):
                        self._add(column)
                    case ddl.ModifyColumn(column=column) if (own := self._own(column.name)) is not None:
                        self._modify(own, column)
                    case ddl.RenameColumn(name=name, to=new) if (own := self._own(name)) is not None:
                        self._check_new(new, own)
                        with self.commit.transaction.update_schema() as update:
                            update.rename_column((own,), new)
                        self._values |= {new: self._values.pop(own)} if own in self._values else {}
                    case ddl.DropColumn(name=name) if (own := self._own(name)) is not None:
                        self._drop(own)
                    case ddl.TruncateTable() | ddl.DropTable():
                        self._is_emptied = True
            self.commit.check()
            files = self.commit.files() if self._is_emptied or self._values else []
            kept = files if self.history is not None or not self._is_emptied else []
            rows = (self._changed(self.commit.rows(file, before), before) for file in kept)
            if files or self.commit.transaction._updates:  # so that columns changed back are noticed
                self.commit.replace(files, rows, self.note)
        except (ValueError, ValidationError) as error:
            raise Rejected(f"{self.commit.ref} cannot be changed like its source: {error}") from error

    def _own(self, name: str) -> str | None:
        """Return the table's spelling of a column, None if it has none."""
        return find((each.name for each in self.commit.schema.fields), name)

    def _hold(self, name: str, wanted: pa.DataType) -> None:
        """Add a column, or give it a wider type."""
        own = self._own(name)
        old = None if own is None else arrow_schema(self.commit.schema).field(own).type
        if old is not None and holds_all(old, wanted):
            return
        if old is not None and not _can_promote(old, wanted):
            raise ValueError(
                f"column {own!r} is {old}, which cannot hold values that are kept as {wanted}, and Iceberg "
                "cannot widen it to that: name the type to keep in `columns`, change the column by hand, or "
                "give the handler another table"
            )
        self._check_new(name, own)
        with self.commit.transaction.update_schema(case_sensitive=False) as update:
            may_be_null = own is None or not self.commit.schema.find_field(own).required
            update.union_by_name(pa.schema([pa.field(name, wanted, may_be_null)]))

    def _check_new(self, name: str, own: str | None) -> None:
        """Raise ValueError if files without ids may have values of another column than `own` by the name."""
        number = own and self.commit.schema.find_field(own).field_id
        mapping = self.commit.transaction.table_metadata.name_mapping()
        if mapping and any(name in each.names and each.field_id != number for each in mapping.root):
            raise ValueError(f"files without ids may have another {name!r}: rewrite them, and unset {_IDS}")

    def _type_of(self, column: ddl.Column) -> pa.DataType:
        return in_table(self.overrides.get(column.name.lower(), column_type(column.type).arrow))

    def _add(self, column: ddl.Column) -> None:
        own, name = self._own(column.name), column.name
        if own is not None:
            if self.commit.schema.find_field(name := own).doc != _DROPPED:
                return  # rows have brought it
            with self.commit.transaction.update_schema() as update:
                update.update_column((name,), doc="")
            self._values[name] = pa.scalar(None, self._type_of(column))  # current versions lose the former's
        self._hold(column.name, self._type_of(column))
        if (value := default_value(column, self.time_ms)) is not None:
            override = self.overrides.get(column.name.lower())
            kind = column_type(column.type) if override is None else fitting(override)
            [self._values[name]] = array_of([value], kind).cast(self._type_of(column))
        elif (column.numbered or column.generated or _is_unknown(column)) and self.commit.files():
            raise ValueError(f"only the source knows the values of {column.name} in rows that exist")

    def _drop(self, own: str) -> None:
        if self.keeps_dropped:
            with self.commit.transaction.update_schema() as update:
                update.update_column((own,), doc=_DROPPED)
            return
        metadata, number = self.commit.transaction.table_metadata, self.commit.schema.find_field(own).field_id
        layouts = (*metadata.partition_specs, *metadata.sort_orders)  # also earlier ones: files may have them
        if any(each.source_id == number for layout in layouts for each in layout.fields):
            raise ValueError(f"files are partitioned or sorted by {own}, which has to stay: skip this")
        with self.commit.transaction.update_schema() as update:
            update.delete_column((own,))

    def _modify(self, own: str, column: ddl.Column) -> None:
        old, new = arrow_schema(self.commit.schema).field(own).type, self._type_of(column)
        is_narrower = old != new and holds_all(old, new) and not pa.types.is_integer(new)
        is_told = column.name.lower() in self.overrides
        if column.generated and self.commit.files():
            raise ValueError(f"only the source knows the values of {own} in rows that exist")
        if is_narrower or not (is_told or self._are_kept(own, old, new, column.type)):
            raise ValueError(f"the values of {own} may change with its type {column.type}")
        self._hold(own, new)

    def _are_kept(self, own: str, old: pa.DataType, new: pa.DataType, source_type: str) -> bool:
        """Whether the source changes no value as the column gets this type."""
        files = self.commit.files() if may_change_alone(source_type) else ()
        value = converted("c", spark_name(old), spark_name(new), source_type)
        changed = transpile(f"SELECT 1 FROM there WHERE NOT c <=> ({value})", read="spark", write="duckdb")[0]
        with duckdb.connect() as engine, suppress(duckdb.Error):  # it lacks some functions of Spark
            for file in files:
                rows = self.commit.rows(file, self.commit.schema.select(own)).rename_columns(["c"])
                if engine.register("there", rows).execute(changed).fetchone():
                    return False
            return True
        return False

    def _changed(self, there: pa.Table, before: Any) -> pa.Table:
        """Return a file's rows with their new values."""
        names = {each.field_id: each.name for each in before.fields}
        prefix, ended = self.history, dict[str, Any]()
        is_current = pa.scalar(True) if prefix is None else there.column(f"{prefix}current")
        if self._is_emptied:  # no version ends before it began, even if the source's clock was set back
            began = there.column(f"{prefix}valid_from").cast(TIME).cast(pa.int64())
            ends = pc.max_element_wise(began, self.time_ms * 1000).cast(TIME)
            kept = there.column(f"{prefix}valid_to").cast(TIME)
            ended = {f"{prefix}valid_to": pc.if_else(is_current, ends, kept)}
            ended[f"{prefix}current"] = pa.chunked_array([pa.repeat(False, len(there))])
        columns, schema = [], arrow_schema(self.commit.schema)
        for own, wanted in zip(self.commit.schema.fields, schema, strict=True):
            if own.field_id in names:
                kept = ended.get(own.name, there.column(names[own.field_id])).cast(wanted.type)
            else:
                kept = pa.nulls(len(there), wanted.type)
            value = self._values.get(own.name)
            columns.append(kept if value is None else pc.if_else(is_current, value.cast(wanted.type), kept))
        return pa.table(columns, schema=schema)


def _is_unknown(column: ddl.Column) -> bool:
    """Whether a default without a value here has one in the source. Zero dates are null."""
    default, has_zeros = column.default, column.type.startswith(("date", "timestamp"))
    is_null = default is None or default.kind == "null" or (has_zeros and not default.text.strip("0-: ."))
    return not is_null


def _can_promote(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether the format can widen a type. PyIceberg checks the fields of structs, and would also take a
    string for a binary. https://iceberg.apache.org/spec/#schema-evolution"""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision < new.precision)
    both = pa.types.is_struct(old) and pa.types.is_struct(new)
    return both or (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
