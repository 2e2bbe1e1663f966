"""Queries of tables with their waiting changes, in a DuckDB of this process."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from handlers.spark.log.owner import owner_of
from handlers.spark.log.store_choice import files_without_java
from handlers.spark.log.stores.interface import scheme_of
from handlers.spark.read.log_heads import ref_at
from handlers.spark.read.moment import Moment, Source, moment_of
from handlers.spark.table_ref import app_id

_MEMORY = "1GiB"
"""What DuckDB uses before it writes to disk. A worker of the same pod needs the rest. SQL may SET another."""
_CATALOGS = frozenset(("system", "temp"))
"""DuckDB's own."""


def read_at(table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the table in a folder or URI. `columns`: None for all.

    Raises like `moment_of`, and ValueError for a column that does not exist."""
    if not table:
        raise ValueError("no table is named: give its folder or URI")
    path = table.rstrip("/") if scheme_of(table) else str(Path(table).absolute())
    files = files_without_java(path)
    ref, prefix = ref_at(files, path), "_"
    with suppress(FileNotFoundError):
        owner = owner_of(files, ref.log_folder)
        ref, prefix = replace(ref, app_id=app_id(owner.database, owner.table)), owner.prefix or "_"
    return read(Source(files, ref, prefix), columns)


def read(source: Source, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table. Raises like `read_at`."""
    if columns is not None and (isinstance(columns, str) or not columns):
        raise ValueError(f"columns: give a list of names, not {columns!r}")
    chosen = "*" if columns is None else ", ".join(map(named, columns))
    with opened(source) as made:
        try:
            found = made.sql(f"SELECT {chosen} FROM binlane.t")
        except duckdb.BinderException as error:
            raise ValueError(f"{source.ref}: {str(error).splitlines()[0]}") from None
        return found.to_arrow_table()


@contextmanager
def opened(source: Source) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to a DuckDB in which `binlane.t` is the table of this moment. Raises like `moment_of`."""
    with moment_of(source, "t") as moment:
        try:
            with connected({("binlane", "t"): moment}) as made:
                yield made
        except duckdb.Error as error:
            raise RuntimeError(f"{source.ref} cannot be read: {str(error).splitlines()[0]}") from None


def values_of(result: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as Python's values. If a column has times that Python does not have, they are texts."""
    for batch in result:
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        if pa.types.is_nested(column.type):
            raise
        with duckdb.connect() as made:  # Arrow has no words for infinity
            made.execute("SET TimeZone = 'UTC'").register("rows", pa.table({"c": column}))
            found = [each for (each,) in made.execute("SELECT c::VARCHAR FROM rows").fetchall()]
    return found


def connected(moments: Mapping[tuple[str, str], Moment]) -> duckdb.DuckDBPyConnection:
    """Connect to a DuckDB in which each table (database and name) is a view. Raises LookupError for names
    that DuckDB cannot keep apart."""
    made = duckdb.connect(
        config={
            "python_enable_replacements": "false",
            "memory_limit": _MEMORY,
            "temp_directory": f"{tempfile.gettempdir()}/binlane-{uuid.uuid4().hex}",  # made if it is needed
        }
    )
    made.execute("SET TimeZone = 'UTC'")
    # A catalog of this name would hide a source database `memory`.
    made.execute("ATTACH ':memory:' AS _binlane; USE _binlane; DETACH memory")
    known: dict[tuple[str, str], str] = {}
    for (database, table), moment in moments.items():
        name = f"{database}.{table}"
        if database.casefold() in _CATALOGS:
            raise LookupError(f"a database named {database} cannot be queried: use binlane.read")
        if other := known.get(folded := (database.casefold(), table.casefold())):
            raise LookupError(
                f"{other} and {name} differ only in case, which DuckDB ignores: query one of them, or use "
                "binlane.read"
            )
        known[folded] = name
        for relation, rows in moment.relations.items():
            made.register(relation, rows)
        made.execute(f"CREATE SCHEMA IF NOT EXISTS {named(database)}")
        made.execute(f"CREATE VIEW {named(database)}.{named(table)} AS {moment.sql}")
    return made


def named(name: str) -> str:
    """Return a name as an identifier of DuckDB."""
    return '"' + name.replace('"', '""') + '"'
