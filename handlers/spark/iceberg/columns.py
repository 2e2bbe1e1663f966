"""Columns of Iceberg tables: their types in Arrow, new tables, and partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs, schema_to_pyarrow, visit_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids, make_compatible_name
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DoubleType, FloatType

from handlers.spark.delta.arrow_rows import holds_all
from handlers.spark.options import PARTITION

_OF_STRUCTS = re.compile("list<struct<|, struct<|: required ")
_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a table as rows have them."""
    found = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([pa.field(each.name, _small(each.type)) for each in found])


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _small(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_small(kind.value_type))
    if isinstance(kind, pa.BaseExtensionType):  # uuid
        return kind.storage_type
    return _SMALL.get(kind, kind)


def in_table(arrow: pa.DataType) -> pa.DataType:
    """Return the type in which a table keeps a segment's column."""
    return arrow_schema(new_schema(pa.schema([("c", arrow)]))).field(0).type


def new_schema(arrow: pa.Schema) -> Schema:
    """Return the columns of a new table."""
    return assign_fresh_schema_ids(visit_pyarrow(arrow, _ConvertToIcebergWithoutIDs()))


def new_partitions(texts: Sequence[str], schema: Schema) -> PartitionSpec:
    """Return the partitions of a new table. Columns that it does not have are left out."""
    names = {each.name.casefold(): each for each in schema.fields}
    fields: list[PartitionField] = []
    for text in texts:
        found = PARTITION.fullmatch(text)
        time, sized, size, column, plain = ("", "", "", "", text) if found is None else found.groups()
        if (own := names.get((column or plain).casefold())) is not None:
            kind = parse_transform((time or (f"{sized}[{size}]" if sized else "identity")).lower())
            name = own.name if plain else f"{own.name}_{(time or sized).lower()}"
            while not plain and name.casefold() in names:
                name += "_partition"
            fields.append(PartitionField(own.field_id, 1000 + len(fields), kind, name))
    return PartitionSpec(*fields)


def unfit(schema: Schema, partitions: PartitionSpec, names: Sequence[str] = ()) -> str:
    """Return why a commit of rows with these columns would fail, or change values. Empty if it would not."""
    added = {f"_partition_{each.name}" for each in partitions.fields}  # PyIceberg divides rows by them
    for spelled in ([each.name for each in schema.fields], names):
        known = {key: name for name in spelled for key in _keys(name)}
        for name in spelled:
            is_other = not name or any(known[key] != name for key in _keys(name))
            if is_other or name in added or name.lower().startswith("_binlane_"):
                return (
                    f"{name!r} is also another column, in files or if case is ignored, or one that merges add"
                )
    for field in schema.fields:
        if _OF_STRUCTS.search(kind := str(field.field_type)):
            return f"column {field.name!r} is {kind}, and PyIceberg does not keep its nulls"
    for part in partitions.fields:
        if len(partitions.fields_by_source_id(part.source_id)) > 1:  # version 1 keeps removed ones as void
            return f"PyIceberg writes no table with two partitions of one column, such as {part.name}"
        if (own := schema.find_column_name(part.source_id)) is None:
            return f"somebody has dropped the column of its partition {part.name}"
        source, how = schema.find_type(part.source_id), part.transform
        is_float = isinstance(source, FloatType | DoubleType)  # PyIceberg splits -0.0 and NaN wrongly
        if str(how) != "void" and (is_float or not how.can_transform(source)):
            return f"{own} is {source}, which cannot be partitioned by {how}"
    return ""


def _keys(name: str) -> set[str]:
    return {name.casefold(), make_compatible_name(name or "_").casefold()}  # files have the second one


def lacking(table: pa.Schema, rows: pa.Schema) -> list[str]:
    """Return the rows' columns that the table cannot keep, with those inside structs."""
    own, found = {each.name.casefold(): each.type for each in table}, list[str]()
    for each in rows:
        kind, wanted = own.get(each.name.casefold()), in_table(each.type)
        if kind is not None and pa.types.is_struct(kind) and pa.types.is_struct(wanted):
            found += lacking(pa.schema(list(kind)), pa.schema(list(wanted)))
        elif kind is None or not holds_all(kind, wanted):
            found.append(each.name)
    return found


def fitted_to(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the table's columns (null if lacking) and types. Raises ArrowInvalid."""
    names = {name.casefold(): name for name in rows.column_names}
    columns = []
    for field in schema:
        name = names.get(field.name.casefold())
        if name is None or rows.column(name).null_count == len(rows):
            columns.append(pa.nulls(len(rows), field.type))
        else:
            columns.append(_spelled(rows.column(name), field.type).cast(field.type))
    return pa.table(columns, schema=schema)


def _spelled(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return structs with the table's spelling of their fields: Arrow makes others null."""
    if not pa.types.is_struct(kind):
        return values
    own = {each.name.casefold(): each.name for each in kind}
    fields = [each.with_name(own.get(each.name.casefold(), each.name)) for each in values.type]
    return values.combine_chunks().view(pa.struct(fields))
