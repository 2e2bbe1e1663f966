"""Columns of Iceberg tables: types (from and to Arrow), new tables, and changes that keep the field ids."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from handlers.spark.delta.arrow_rows import holds_all
from handlers.spark.delta.evolving import IncompatibleColumn
from handlers.spark.rows.column_types import spark_name
from handlers.spark.rows.spark_types import can_widen
from handlers.spark.rows.transforms import read_transform
from handlers.spark.table_ref import TableRef

_TYPES = (
    (pa.bool_(), iceberg.BooleanType()),
    (pa.int32(), iceberg.IntegerType()),
    (pa.int64(), iceberg.LongType()),
    (pa.float32(), iceberg.FloatType()),
    (pa.float64(), iceberg.DoubleType()),
    (pa.string(), iceberg.StringType()),
    (pa.binary(), iceberg.BinaryType()),
    (pa.date32(), iceberg.DateType()),
    (pa.timestamp("us"), iceberg.TimestampType()),
    (pa.timestamp("us", tz="UTC"), iceberg.TimestamptzType()),
)
_TO_ICEBERG = dict(_TYPES) | dict.fromkeys((pa.int8(), pa.int16()), iceberg.IntegerType())
_TO_ARROW = {str(kind): arrow for arrow, kind in _TYPES}


def iceberg_type(arrow: pa.DataType, ids: Iterator[int]) -> Any:
    """Return Iceberg's type for one of a segment's columns. `ids`: of nested fields."""
    if arrow in _TO_ICEBERG:
        return _TO_ICEBERG[arrow]
    if pa.types.is_decimal(arrow):
        return iceberg.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_struct(arrow):
        return iceberg.StructType(
            *(iceberg.NestedField(next(ids), each.name, iceberg_type(each.type, ids)) for each in arrow)
        )
    return iceberg.ListType(next(ids), iceberg_type(arrow.value_type, ids), element_required=False)


def arrow_type(kind: Any) -> pa.DataType:
    """Return Arrow's type for one of Iceberg's."""
    if str(kind) in _TO_ARROW:
        return _TO_ARROW[str(kind)]
    if isinstance(kind, iceberg.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, iceberg.StructType):
        return pa.struct([pa.field(each.name, arrow_type(each.field_type)) for each in kind.fields])
    if isinstance(kind, iceberg.ListType):
        return pa.list_(arrow_type(kind.element_type))
    only = Schema(iceberg.NestedField(1, "c", kind))  # of a column that somebody else added
    return schema_to_pyarrow(only, include_field_ids=False).field(0).type


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a table as rows have them."""
    return pa.schema([pa.field(each.name, arrow_type(each.field_type)) for each in schema.fields])


def in_table(arrow: pa.DataType) -> pa.DataType:
    """Return the type in which a new table keeps a segment's column."""
    return arrow_type(iceberg_type(arrow, itertools.count(1)))


def can_promote(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a column's type can be changed without a rewrite of its files, in each version of the format.

    https://iceberg.apache.org/spec/#schema-evolution"""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision < new.precision)
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def new_schema(arrow: pa.Schema) -> Schema:
    """Return the columns of a new table."""
    ids = itertools.count(1)
    return Schema(
        *(iceberg.NestedField(next(ids), each.name, iceberg_type(each.type, ids)) for each in arrow)
    )


def new_partitions(texts: Sequence[str], schema: Schema) -> PartitionSpec:
    """Return the partitions of a new table. Columns that it does not have are left out."""
    names = {each.name.casefold(): each for each in schema.fields}
    fields: list[PartitionField] = []
    for transform in map(read_transform, texts):
        if (own := names.get(transform.column.casefold())) is None:
            continue
        kind = transform.name.partition("[")[0]
        name = own.name if kind == "identity" else f"{own.name}_{kind}"
        place = 1000 + len(fields)
        fields.append(PartitionField(own.field_id, place, parse_transform(transform.name), name))
    return PartitionSpec(*fields)


def partition_columns(table: Any) -> frozenset[str]:
    """The columns by which the table is partitioned or sorted."""
    schema = table.schema()
    fields = (*table.spec().fields, *table.sort_order().fields)
    return frozenset(schema.find_column_name(each.source_id) or "" for each in fields)


def widened(ref: TableRef, there: pa.DataType, wanted: pa.DataType, name: str) -> pa.DataType:
    """Return the type in which a column of the type `there` can have the values of a segment's column, too.
    Raises IncompatibleColumn if no type can. Delta's types are widened by the same rules."""
    if pa.types.is_struct(there) and pa.types.is_struct(wanted):
        own = list(there)
        for each in wanted:
            place = next(
                (n for n, one in enumerate(own) if one.name.casefold() == each.name.casefold()), None
            )
            if place is None:
                own.append(pa.field(each.name, in_table(each.type)))
            else:
                kind = widened(ref, own[place].type, each.type, f"{name}.{each.name}")
                own[place] = pa.field(own[place].name, kind)
        return pa.struct(own)
    kind = in_table(wanted)
    if there == kind or holds_all(there, kind):
        return there
    if can_promote(there, kind) or can_widen(spark_name(there), spark_name(kind)):
        return kind
    raise IncompatibleColumn(
        f"column {name!r} is {there} in {ref}, but the source's type is now kept as {kind}, which cannot "
        "hold the other's values: name the type to keep in `columns`, change the column in the table, or "
        "give the handler another table"
    )


def can_evolve(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a column can become `new`, which `widened` returned, without a rewrite of its files."""
    if pa.types.is_struct(old):
        known = {each.name: each.type for each in old}
        return all(can_evolve(known[each.name], each.type) for each in new if each.name in known)
    return bool(old == new) or can_promote(old, new)


def evolve(update: Any, old: pa.DataType, new: pa.DataType, path: tuple[str, ...] = ()) -> None:
    """Add and widen fields in an update of the schema. The column at `path` can evolve."""
    if pa.types.is_struct(old):
        known = {each.name: each.type for each in old}
        for each in new:
            if each.name in known:
                evolve(update, known[each.name], each.type, (*path, each.name))
            else:
                update.add_column((*path, each.name), iceberg_type(each.type, itertools.count(1)))
    elif old != new:
        update.update_column(path, iceberg_type(new, itertools.count(1)))


def fitted_to(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the table's columns and types. Columns that they do not have are null.

    Raises ValueError if a value would lose something. `evolve` has made the types wide enough."""
    names = {name.casefold(): name for name in rows.column_names}
    columns = []
    for field in schema:
        name = names.get(field.name.casefold())
        if name is None:
            columns.append(pa.nulls(rows.num_rows, field.type))
        elif pa.types.is_struct(field.type):
            columns.append(_fitted_struct(rows.column(name), field.type))
        else:
            columns.append(rows.column(name).cast(field.type))
    return pa.table(columns, schema=schema)


def _fitted_struct(column: pa.ChunkedArray, kind: pa.StructType) -> pa.Array:
    array = column.combine_chunks()
    array = array if isinstance(array, pa.StructArray) else pa.concat_arrays(column.chunks)
    inner = pa.Table.from_arrays(array.flatten(), names=[each.name for each in array.type])
    fitted = fitted_to(inner, pa.schema(list(kind)))
    parts = [each.combine_chunks() for each in fitted.columns]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
