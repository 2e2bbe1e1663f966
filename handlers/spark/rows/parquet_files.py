"""Parquet files that Spark and Arrow read alike: options for writing, and a check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

_FORMER = frozenset((b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"))
"""Spark notes these in a file with dates of the former calendar: Spark 3 or later, if it is set to LEGACY."""


def writing(schema: pa.Schema) -> dict[str, Any]:
    """Options for pyarrow: floating-point columns have neither statistics nor dictionaries.

    Spark skips rows by these. Statistics leave out NaN, the greatest number for Spark. A dictionary has -0.0
    and 0.0 as two values, which are equal."""
    leaves = list(_leaves(schema))
    exact = [path for path, type_ in leaves if not pa.types.is_floating(type_)]
    if len(exact) == len(leaves):
        return {}
    return {"write_statistics": exact or False, "use_dictionary": exact or False}


def _leaves(fields: Iterable[pa.Field], inside: str = "") -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        path = f"{inside}{field.name}"
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{path}.")
        else:
            yield (f"{path}.list.element" if pa.types.is_list(field.type) else path), field.type


def has_former_dates(dataset: Any) -> bool:
    """Whether a file of Arrow's `dataset` may have dates of the former calendar, which only Spark reads as
    they are. Raises OSError."""
    files = [file.physical_schema.metadata or {} for file in dataset.get_fragments()]
    return any(_FORMER & file.keys() or file.get(b"org.apache.spark.version", b"3") < b"3" for file in files)


def has_other_names(dataset: Any) -> bool:
    """Whether a file's name differs by case from that in the schema of Arrow's `dataset`. ALTER TABLE and
    CONVERT TO DELTA allow this. Spark reads such a column. For Arrow it is missing. Raises OSError."""
    names = set(_names(pa.struct(list(dataset.schema))))
    lowered = {name.lower() for name in names}
    found = (_names(pa.struct(list(file.physical_schema))) for file in dataset.get_fragments())
    return any(name not in names and name.lower() in lowered for each in found for name in each)


def _names(kind: pa.DataType, inside: str = "") -> Iterator[str]:
    """Yield whole names, without those that writers give to the parts of lists."""
    for field in (kind.field(number) for number in range(kind.num_fields)):
        path = f"{inside}.{field.name}" if pa.types.is_struct(kind) else inside
        yield path
        yield from _names(field.type, path)
