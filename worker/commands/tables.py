"""`binlane tables`: list the Spark handlers' tables and their progress, also as a table for SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.box import HEAVY_HEAD
from rich.text import Text

from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.read.facts import Facts, facts_of, known_columns
from handlers.spark.read.in_duckdb import Moment
from handlers.spark.read.log_heads import Found, Shared, head_of, shown_shape
from handlers.spark.read.view import NothingToSee, view_sql
from handlers.spark.runtime.errors import SPARK_ERRORS, told
from handlers.spark.table_ref import quoted
from worker.commands.output import WIDEST, Output, begin, table_with, wide_console
from worker.configuration import Configuration
from worker.observing.overview.trouble import plural
from worker.observing.visible_text import count, moment
from worker.verifying.spark_lakes import Lake, chosen_by, opened_lakes

_AT_ONCE = 4
"""Tables that are read in parallel. Each waits for several small reads."""


def tables(config: Path, patterns: Sequence[str] = (), as_json: bool = False, views: bool = False) -> int:
    """List the tables of the Spark handlers; with `views`, print statements that create views of them.

    Returns 0, or 1 if something could not be read. Raises ConfigurationError."""
    chosen = chosen_by(patterns)
    configuration, output = begin("tables", config, level="warning")
    try:
        with opened_lakes(configuration) as lakes:
            found = [(lake, table) for lake in lakes for table in lake.tables(chosen)]
            if views:
                return _print_views(found)
            facts = facts_of_all(found)
    except (OSError, BrokenLog, RuntimeError, *SPARK_ERRORS) as error:
        return output.failed(told(error) if isinstance(error, SPARK_ERRORS) else error)
    if as_json:
        output.json({"tables": facts})
    else:
        _print(facts, output, patterns)
    return 1 if any(each.unread for each in facts) else 0


def facts_of_all(found: Sequence[tuple[Lake, Found]]) -> list[Facts]:
    """Collect the facts of these tables, in order. Raises like `opened_lakes`."""
    shared = {id(lake): Shared(lake.files) for lake, _ in found}

    def read(one: tuple[Lake, Found]) -> Facts:
        lake, table = one
        return facts_of(lake.spark, lake.files, table, lake.entry.name, shared[id(lake)])

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tables") as pool:
        return list(pool.map(read, found))


def _print_views(found: Sequence[tuple[Lake, Found]]) -> int:
    """Print statements for spark-sql or a notebook. The views' names are suggestions, each for one table: two
    handlers may keep one source table, and Spark ignores case."""
    shown = [(lake, table) for lake, table in found if table.mode != "history"]
    plain = Counter(f"{table.database}_{table.table}".lower() for _, table in shown)
    used: set[str] = set()
    for lake, table in shown:
        head, prefix = head_of(lake.files, table.ref.log_folder), lake.entry.options.prefix
        columns = known_columns(lake.spark, lake.files, table.ref)
        print(f"-- {table.name}")
        if head is None:
            print(f"-- has no log: read {table.ref.sql}\n")
            continue
        try:
            mode, shape = shown_shape(lake.files, table.ref, head, prefix, is_kept=True)
            sql = view_sql(table.ref, shape, mode=mode, prefix=prefix, columns=columns)
        except NothingToSee as reason:
            print(f"-- {reason}\n")
            continue
        name = f"{table.database}_{table.table}"
        name += f"_{table.mode}" if plain[name.lower()] > 1 else ""
        if name.lower() in used:
            print(f"-- no view: one above has the name {name}\n")
            continue
        used.add(name.lower())
        print(f"CREATE OR REPLACE VIEW {quoted(name)} AS\n{sql};\n")
    return 0


def _print(facts: Sequence[Facts], output: Output, patterns: Sequence[str]) -> None:
    console = wide_console(WIDEST)
    if not facts:
        console.print(
            Text(f"No {'such ' if patterns else ''}tables yet. Those of Iceberg are listed by their catalog.")
        )
        return
    numbers = ("rows", "files", "size", "version")
    times = ("newest change", "in the table")
    table = table_with(
        ("table", "mode", *numbers, "waiting", *times, "last offsets", "place"),
        numbers,
        box=HEAVY_HEAD if console.is_terminal else None,
        caption="Times are the source's, in UTC.",
        caption_justify="left",
    )
    for each in facts:
        cells = (
            each.table,
            each.mode,
            count(each.rows),
            count(each.files),
            "-" if each.bytes is None else _size(each.bytes),
            count(each.version),
            _waiting(each),
            _time(each.source_time_ms),
            _time(each.merged_source_time_ms),
            "\n".join(f"{at['topic']}[{at['partition']}] {at['offset']}" for at in _offsets(each)) or "-",
            each.place,
        )
        table.add_row(*(Text(output.clean(cell, lines=True)) for cell in cells))
    console.print(table)
    for each in facts:
        for problem in each.problems:
            console.print(Text(output.clean(f"{each.table}: {problem}")), soft_wrap=True)


def _waiting(facts: Facts) -> str:
    parts = []
    if facts.waiting_segments:
        parts = [f"{facts.waiting_rows:,} rows, {_size(facts.waiting_bytes)}"]
    if waiting := facts.waiting_statements:
        parts.append(plural(waiting, "statement"))
    return ", ".join(parts) or "-"


def _size(value: int) -> str:
    """Format a size with at most three digits: `4.2 MiB`."""
    size, units = float(value), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 999.5 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.3g} {units[0]}"


def _time(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    time = moment(milliseconds)
    return f"{milliseconds:.3g} ms" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")


_TIME = pa.timestamp("ms", tz="UTC")
_OFFSET = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
_COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in ("table", "handler", "mode", "place")),
        *(("source_time", _TIME), ("merged_source_time", _TIME), ("behind_seconds", pa.float64())),
        *((f"waiting_{name}", pa.int64()) for name in ("rows", "segments", "bytes", "statements")),
        *((name, pa.int64()) for name in ("rows", "files", "bytes", "version")),
        *(("offsets", pa.list_(_OFFSET)), ("problems", pa.list_(pa.string())), ("read_at", _TIME)),
    ]
)


def freshness(configuration: Configuration) -> Moment:
    """Read how far each table has come, at this moment. Raises like `opened_lakes`, and BrokenLog."""
    with opened_lakes(configuration) as lakes:
        facts = facts_of_all([(lake, found) for lake in lakes for found in lake.tables(lambda _: True)])
    rows = pa.Table.from_pylist([*map(_row, facts)], _COLUMNS)
    return Moment("SELECT * FROM binlane_facts", {"binlane_facts": rows})


def _row(facts: Facts) -> dict[str, Any]:
    newest, merged = facts.source_time_ms, facts.merged_source_time_ms
    behind = None if newest is None or merged is None else (newest - merged) / 1000
    times = {"source_time": newest, "merged_source_time": merged, "behind_seconds": behind}
    return asdict(facts) | times | {"offsets": _offsets(facts), "read_at": datetime.now(UTC)}


def _offsets(facts: Facts) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": partition, "offset": offset}
        for topic, partitions in facts.offsets.items()
        for partition, offset in partitions.items()
    ]
