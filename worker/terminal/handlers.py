"""Format handlers' own status for a terminal: where Spark runs, and which rows wait for a merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from worker.observing.overview.figures import handled_tables
from worker.observing.status import WorkerStatus
from worker.observing.visible_text import count, duration, moment, printable, size
from worker.terminal.grids import grid_of

_SHOWN_APART = frozenset(("handler", "type", "lane", "spark", "tables", "error"))


@dataclass(frozen=True, slots=True)
class WaitingTable:
    """A table that a handler merges after its batches."""

    table: str
    handler: str
    rows: float
    bytes: float
    seconds: float | None
    """How long the oldest row has waited; None: no row waits."""
    merged: datetime | None
    """The source time up to which the table is merged."""
    error: str | None


def waiting_tables(status: WorkerStatus) -> list[WaitingTable]:
    """List the tables: those with errors first, then the longest waits."""
    found = [
        WaitingTable(
            str(table.get("table", "")),
            str(handler.get("handler", "")),
            _number(table.get("waiting_rows")) or 0.0,
            _number(table.get("waiting_bytes")) or 0.0,
            _number(table.get("waiting_seconds")),
            moment(_number(table.get("merged_source_time_ms"))),
            str(table["error"]) if table.get("error") else None,
        )
        for handler, table in handled_tables(status.handlers)
    ]
    return sorted(found, key=lambda each: (each.error is None, -(each.seconds or 0.0), each.table))


def handler_lines(status: WorkerStatus) -> list[Text]:
    """Return one line for each Spark (a worker's handlers share it), and for each other handler with a status
    of its own."""
    lines: list[Text] = []
    sparks: dict[tuple[str, str, str], None] = {}
    for handler in status.handlers:
        spark = handler.get("spark")
        if isinstance(spark, Mapping):
            master, version, ui = (str(spark.get(key) or "") for key in ("master", "version", "ui"))
            sparks[master, version, ui] = None
        rest = {key: value for key, value in handler.items() if key not in _SHOWN_APART}
        if rest:
            lines.append(
                _line(str(handler.get("handler", "")), [f"{key} {_told(rest[key])}" for key in rest])
            )
    waiting = _waiting(waiting_tables(status))
    for master, version, ui in sparks:
        lines.insert(0, _line(f"Spark {version}".rstrip(), [master, waiting, ui and f"UI {ui}"]))
    return lines


def handler_alarms(status: WorkerStatus) -> list[str]:
    lines = [
        f"handler {handler.get('handler')}: {handler['error']}"
        for handler in status.handlers
        if handler.get("error")
    ]
    return lines + [
        f"{table.table} (handler {table.handler}): {table.error}"
        for table in waiting_tables(status)
        if table.error
    ]


def waiting_grid(tables: Sequence[WaitingTable], as_of: datetime, lines: box.Box | None) -> Table:
    titles = ("Waiting rows", "Waiting bytes", "Oldest waits", "Table is behind")
    grid = grid_of("Spark tables", titles, lines)
    for table in tables:
        behind = None if table.merged is None else max(0.0, (as_of - table.merged).total_seconds())
        grid.add_row(
            Text(printable(table.table), style="red" if table.error else ""),
            count(table.rows),
            size(table.bytes),
            duration(table.seconds),
            # A table without waiting rows has no known newer changes.
            duration(behind) if table.rows else "-",
        )
    return grid


def _waiting(tables: Sequence[WaitingTable]) -> str:
    waiting = [table for table in tables if table.rows]
    if not waiting:
        return "nothing waits" if tables else ""
    rows, octets = sum(each.rows for each in waiting), sum(each.bytes for each in waiting)
    oldest = max(each.seconds or 0.0 for each in waiting)
    word = "table" if len(waiting) == 1 else "tables"
    return (
        f"{count(rows)} rows ({size(octets)}) wait for {len(waiting):,} {word}, the oldest {duration(oldest)}"
    )


def _line(name: str, parts: Sequence[str]) -> Text:
    text = Text(printable(name), style="bold", no_wrap=True, overflow="ellipsis")
    for part in filter(None, parts):
        text.append(" · ", "dim").append(printable(part), "not bold")
    return text


def _told(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
