"""Format handlers' own status for a terminal: where Spark runs, and which rows wait for a merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from worker.observing.overview.figures import waiting_tables
from worker.observing.status import WorkerStatus
from worker.observing.visible_text import count, duration, moment, printable, size
from worker.terminal.grids import grid_of

_SHOWN_APART = frozenset(("handler", "type", "lane", "spark", "tables", "error"))


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
        f"{table['table']} (handler {table['handler']}): {table['error']}"
        for table in waiting_tables(status)
        if table["error"]
    ]


def waiting_grid(tables: Sequence[dict[str, Any]], as_of: datetime, lines: box.Box | None) -> Table:
    titles = ("Waiting rows", "Waiting bytes", "Oldest waits", "Table is behind")
    grid = grid_of("Spark tables", titles, lines)
    for table in tables:
        merged = moment(table["merged_source_time_ms"])
        behind = None if merged is None else max(0.0, (as_of - merged).total_seconds())
        grid.add_row(
            Text(printable(table["table"]), style="red" if table["error"] else ""),
            count(table["waiting_rows"] or 0),
            size(table["waiting_bytes"] or 0),
            duration(table["waiting_seconds"]),
            # A table without waiting rows has no known newer changes.
            duration(behind) if table["waiting_rows"] else "-",
        )
    return grid


def _waiting(tables: Sequence[dict[str, Any]]) -> str:
    waiting = [table for table in tables if table["waiting_rows"]]
    if not waiting:
        return "nothing waits" if tables else ""
    rows, octets = (sum(each[key] or 0 for each in waiting) for key in ("waiting_rows", "waiting_bytes"))
    oldest = max(each["waiting_seconds"] or 0.0 for each in waiting)
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
