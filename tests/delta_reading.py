"""Delta tables read by delta-rs, which is no Spark: as other engines see them, and at once."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from handlers.spark.read.in_duckdb import Source, read, read_at
from handlers.spark.table_ref import TableRef, quoted

__all__ = ["check_read", "column_types", "read_delta", "table_at"]


def table_at(path: str) -> TableRef:
    """A Delta table addressed by its place, with its segments inside."""
    return TableRef(f"delta.{quoted(path)}", path, f"{path}/_binlane/pending")


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


def check_read(frame: Any, table: str | Source) -> None:
    """What is read without Spark is what the view shows, at any moment."""
    shown, found = frame.toArrow(), read_at(table) if isinstance(table, str) else read(table)
    assert found.column_names == shown.column_names
    names = {"large_": "", "element:": "item:", "<l:": "<item:"}
    types = [[_replaced(str(each), names) for each in made.schema.types] for made in (found, shown)]
    assert types[0] == types[1], [pair for pair in zip(*types, strict=True) if pair[0] != pair[1]]
    rows = [Counter(map(repr, made.to_pylist())) for made in (found, shown)]
    assert rows[0] == rows[1], (table, [*(rows[0] - rows[1])][:3], [*(rows[1] - rows[0])][:3])


def _replaced(text: str, names: Mapping[str, str]) -> str:
    for name, other in names.items():
        text = text.replace(name, other)
    return text


@contextmanager
def _opened(folder: Path) -> Iterator[DeltaTable]:
    """delta-rs does not find its way in folders with a space in their names: it gets a copy then."""
    if re.fullmatch(r"[\w/.-]+", str(folder)):
        yield DeltaTable(folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield DeltaTable(shutil.copytree(folder, Path(temporary, "table")))
