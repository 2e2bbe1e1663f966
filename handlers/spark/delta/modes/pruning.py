"""Between which keys changes are, so that Delta passes over files without any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from handlers.spark.delta.evolving import spark_schema
from handlers.spark.delta.statements import literal
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import quoted

_LONGEST = 64
"""Characters of a bound: Delta keeps but 32 of a string in its statistics."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """What is known of the keys of changes."""

    bounds: tuple[tuple[str, str, str], ...] = ()
    """Column, least and greatest value as SQL; not of every column."""
    are_all_new: bool = False
    """Whether all changes are inserts."""

    def conditions(self, alias: str) -> Sequence[str]:
        """What a row has to meet to have one of the keys."""
        return [f"{alias}.{quoted(name)} BETWEEN {least} AND {most}" for name, least, most in self.bounds]


def key_range(session: SparkSession, view: str, shape: Shape, op: str) -> KeyRange:
    """Of the changes in a view. One small query."""
    types = {field.name: field.type for field in shape.schema}
    names = [name for name in shape.key if _has_order(types[name])]
    wanted = [f"count_if({op} <> 'insert')"]
    for name in names:
        wanted += [f"CAST({function}({quoted(name)}) AS string)" for function in ("min", "max")]
    [found] = session.sql(f"SELECT {', '.join(wanted)} FROM {view}").collect()
    bounds = []
    kinds = {field.name: field.dataType.simpleString() for field in spark_schema(shape.schema).fields}
    for number, name in enumerate(names):
        least, most = found[1 + 2 * number], found[2 + 2 * number]
        if least is None or max(len(least), len(most)) > _LONGEST:
            continue
        if pa.types.is_integer(types[name]):
            least, most = _rounded(int(least), int(most), types[name].bit_width)
        low, high = (f"CAST({literal(text)} AS {kinds[name]})" for text in (least, most))
        bounds.append((name, low, high))
    return KeyRange(tuple(bounds), found[0] == 0)


def _has_order(arrow: pa.DataType) -> bool:
    """Whether values are told as text and back without loss, and Delta has statistics of them."""
    return bool(
        pa.types.is_integer(arrow)
        or pa.types.is_decimal(arrow)
        or pa.types.is_string(arrow)
        or pa.types.is_date(arrow)
        or pa.types.is_timestamp(arrow)
    )


def _rounded(least: int, most: int, bits: int) -> tuple[str, str]:
    """Wider bounds that change seldom: numbers are part of the code that Spark makes of a query, and it takes
    longer to compile that anew than to read some more rows."""
    step = 1 << max(0, (most - least).bit_length() - 2)
    low, high = least // step * step, (most // step + 1) * step
    limit = 1 << (bits - 1)
    return str(max(low, -limit)), str(min(high, limit - 1))
