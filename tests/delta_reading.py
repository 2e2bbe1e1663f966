"""Delta tables read by delta-rs, which is no Spark: as other engines see them, and at once."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from handlers.spark.table_ref import quoted

__all__ = ["column_types", "read_delta"]


def read_delta(
    folder: Path,
    columns: str = "*",
    *,
    where: str = "true",
    spark: Callable[[], SparkSession] | None = None,
) -> list[dict[str, Any]]:
    """The rows of a table for which an SQL condition holds. `columns`: a SELECT list.

    `spark` gives a session that reads what delta-rs does not: tables of which a column got a wider type in
    place, and lists of more than names.
    """
    names = _names(columns)
    with _opened(folder) as table:
        is_widened = "typeWidening" in (table.protocol().reader_features or ())
        if spark is None or (names and not is_widened):
            query = f"SELECT {names} FROM found WHERE {where}"
            result = QueryBuilder().register("found", table).execute(query)
            return _rows(pa.table(result))
    query = f"SELECT {columns} FROM delta.{quoted(str(folder))} WHERE {where}"
    return _rows(spark().sql(query).toArrow())


def _rows(found: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def _names(columns: str) -> str:
    """A SELECT list with names as delta-rs quotes them; empty: it holds more than names."""
    if columns == "*":
        return columns
    found = [re.fullmatch(r"(\w+)|`([^`]+)`", each.strip()) for each in columns.split(",")]
    names = [f'"{each[1] or each[2]}"' for each in found if each is not None]
    return ", ".join(names) if len(names) == len(found) else ""


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
