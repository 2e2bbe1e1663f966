"""Delta tables read by delta-rs, which is no Spark: as other engines see them, and at once."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql.types import StructType

__all__ = ["column_types", "is_widened", "plain_names", "read_delta"]


def read_delta(folder: Path, columns: Sequence[str] = (), where: str = "true") -> list[dict[str, Any]]:
    """The rows of a table for which an SQL condition holds; all their columns, unless some are named."""
    selected = ", ".join(f'"{column}"' for column in columns) or "*"
    with _opened(folder) as table:
        result = (
            QueryBuilder().register("found", table).execute(f"SELECT {selected} FROM found WHERE {where}")
        )
        rows: list[dict[str, Any]] = pa.table(result).to_pylist()
    return rows


def plain_names(columns: str) -> list[str] | None:
    """Those of a SELECT list, none for `*`; None: they are more than names of columns."""
    if columns == "*":
        return []
    found = [re.fullmatch(r"(\w+)|`([^`]+)`", each.strip()) for each in columns.split(",")]
    names = [each[1] or each[2] for each in found if each is not None]
    return names if len(names) == len(found) else None


def is_widened(folder: Path) -> bool:
    """Whether a column ever got a wider type in place: delta-rs does not read such a table."""
    with _opened(folder) as table:
        return "typeWidening" in (table.protocol().reader_features or ())


def column_types(folder: Path) -> dict[str, str]:
    """Column -> its type, as Spark spells it."""
    with _opened(folder) as table:
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
    return {column.name: column.dataType.simpleString() for column in schema.fields}


@contextmanager
def _opened(folder: Path) -> Iterator[DeltaTable]:
    """delta-rs does not find its way in folders with a space in their names: it gets a copy then."""
    if re.fullmatch(r"[\w/.-]+", str(folder)):
        yield DeltaTable(folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield DeltaTable(shutil.copytree(folder, Path(temporary, "table")))
