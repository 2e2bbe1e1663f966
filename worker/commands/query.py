"""`binlane query`: SQL on the Spark handlers' tables, without Spark."""

from __future__ import annotations

import csv
import logging
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from rich.box import HEAVY_HEAD
from rich.table import Table
from rich.text import Text
from sqlglot import expressions

from handlers.spark.read.in_duckdb import Moment, connected, moment_of, named, values_of
from handlers.values.change_json import json_text, json_value
from worker.commands.output import WIDEST, Output, begin, wide_console
from worker.configuration import Configuration
from worker.verifying.source_tables import SourceTables

FORMATS = ("table", "json", "csv", "arrow")
FRESHNESS = "binlane.freshness"
"""A table with the facts of all tables, unless the source has one of this name."""
_SCHEMAS = frozenset(("information_schema", "pg_catalog"))
_NOT_IN_ARROW = re.compile(r"\b(UHUGEINT|BIGNUM|BIT|TIME(?! ZONE))\b")
"""Types of DuckDB whose values Arrow or Python would change, such as 24:00. They become texts."""
_AT_ONCE = 10_000
"""Rows that are converted together."""
_SHOWN = 1_000
"""The most rows of the format `table`."""
_REFUSED = (LookupError, RuntimeError, OSError, ValueError, TypeError, ArithmeticError, duckdb.Error)


def query(config: Path, sql: str, format: str = "table") -> int:
    """Run a query of DuckDB, in which each source table (`database.table`) is its Spark table of this moment.

    Prints the result as `format`, one of FORMATS. Returns 0, or 1 if a table cannot be read or the query is
    refused. Raises ConfigurationError."""
    configuration, output = begin("query", config, level="warning", check_handlers=False)
    try:
        tables = SourceTables(configuration)
        with ExitStack() as stack:
            moments = {name: _moment(configuration, tables, name, stack) for name in _tables_in(sql)}
            made = stack.enter_context(connected(moments))
            with ThreadPoolExecutor(1) as pool:
                _answer(made, sql, format, output, partial(_awaited, made, pool))
    except BrokenPipeError:
        raise  # as for each command, that is the reader's end of the output
    except _REFUSED as error:
        return output.failed(error)
    return 0


def _moment(
    configuration: Configuration, tables: SourceTables, named: tuple[str, str], stack: ExitStack
) -> Moment:
    name = ".".join(named)
    try:
        source = tables.of(name, [len(named[0])])
    except LookupError:
        if name.casefold() != FRESHNESS:
            raise
        # It imports Spark's package, which takes a second, and need not be there.
        from worker.commands.tables import freshness  # noqa: PLC0415 (see above)

        return freshness(configuration)
    return stack.enter_context(moment_of(source, f"{len(named[0])} {name}"))  # a name may contain dots


def _tables_in(sql: str) -> Sequence[tuple[str, str]]:
    """Return the tables that are named with a database but no catalog, each once: database and table.

    sqlglot and DuckDB are both asked: sqlglot does not know all names and statements. DuckDB refuses some
    queries of tables that it does not have."""
    found: list[expressions.Table] = []
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of statements that it does not know
    with suppress(sqlglot.errors.SqlglotError):
        for tree in sqlglot.parse(sql, read="duckdb"):
            found += () if tree is None else tree.find_all(expressions.Table)
    with duckdb.connect() as empty, suppress(duckdb.Error):
        for statement in empty.extract_statements(sql):
            with suppress(duckdb.Error, sqlglot.errors.SqlglotError):
                names = empty.get_table_names(statement.query, qualified=True)
                text = f"FROM {', '.join(sorted(names))}"  # each with its alias
                found += sqlglot.parse_one(text, read="duckdb").find_all(expressions.Table)
    named = dict.fromkeys((each.db, each.name) for each in found if each.db and not each.catalog)
    return [each for each in named if each[1] and each[0].casefold() not in _SCHEMAS]


def _awaited(
    made: duckdb.DuckDBPyConnection, pool: ThreadPoolExecutor, call: Callable[..., Any], *given: Any
) -> Any:
    """Call it in the pool's thread, so that Ctrl-C ends it. DuckDB itself looks for signals too rarely."""
    running = pool.submit(call, *given)
    try:
        return running.result()
    except KeyboardInterrupt:
        while not running.done():  # between two statements, an interrupt has no effect
            made.interrupt()
            wait((running,), 0.1)
        raise


def _answer(
    made: duckdb.DuckDBPyConnection, sql: str, format: str, output: Output, awaited: Callable[..., Any]
) -> None:
    if (result := awaited(made.sql, sql)) is not None:
        columns = [f"#{number}" for number in range(1, len(result.columns) + 1)]
        for at, kind in enumerate(result.types):
            if _NOT_IN_ARROW.search(str(kind)):
                columns[at] += f"::VARCHAR AS {named(result.columns[at])}"
        if any("::" in each for each in columns):
            result = result.project(", ".join(columns))
        reader = awaited(result.to_arrow_reader, _AT_ONCE)
        batches = iter(partial(awaited, next, reader, None), None)
        _print(pa.RecordBatchReader.from_batches(reader.schema, batches), format, output)


def _print(result: pa.RecordBatchReader, format: str, output: Output) -> None:
    names = _distinct(result.schema.names)
    if format == "arrow":
        stream = pa.ipc.new_stream(sys.stdout.buffer, result.schema)
        for batch in result:
            stream.write_batch(batch)
        stream.close()  # not after an error: nobody may read what it writes
    elif format == "json":
        for row in values_of(result):
            sys.stdout.write(json_text(dict(zip(names, row, strict=True))) + "\n")
    elif format == "csv":
        # Only with "\r\n" as its end of lines does Python 3.11 quote a value with one of both.
        writer = csv.writer(SimpleNamespace(write=lambda line: sys.stdout.write(line[:-2] + "\n")))
        writer.writerow(names)
        writer.writerows(map(_text, row) for row in values_of(result))
    else:
        _print_table(result, output)


def _print_table(result: pa.RecordBatchReader, output: Output) -> None:
    console = wide_console(WIDEST)
    table = Table(box=HEAVY_HEAD if console.is_terminal else None)
    for field in result.schema:
        is_number = (
            pa.types.is_integer(field.type)
            or pa.types.is_decimal(field.type)
            or pa.types.is_floating(field.type)
        )
        table.add_column(
            Text(output.clean(field.name)), justify="right" if is_number else "left", overflow="fold"
        )
    rows = values_of(result)
    for row in islice(rows, _SHOWN):
        table.add_row(*(Text(output.clean("-" if value is None else _text(value))) for value in row))
    console.print(table)
    if next(rows, None) is not None:
        output.say(f"only the first {_SHOWN:,} rows are shown: add a LIMIT, or choose another --format")


def _text(value: Any) -> str:
    """Return a value of CSV: empty for NULL, numbers and nested ones as JSON writes them."""
    if value is None:
        return ""
    told = json_value(value)
    return told if isinstance(told, str) else json_text(told)


def _distinct(names: Sequence[str]) -> list[str]:
    """Number names that occur again: `id`, `id_1`."""
    found: list[str] = []
    for name in names:
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return found
