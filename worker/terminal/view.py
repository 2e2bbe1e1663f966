"""A worker's status in a terminal: complete, or as a live view that fits the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from worker.observing.overview import figures
from worker.observing.overview.figures import waiting_tables
from worker.observing.overview.of_rules import notes
from worker.observing.overview.of_systems import not_begun, of_kafka
from worker.observing.overview.trouble import Trouble
from worker.observing.overview.troubles import headline, troubles
from worker.observing.status import WorkerStatus
from worker.observing.visible_text import age, count, duration, moment, printable, size
from worker.terminal import grids
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


_LANE_CELL = 38
"""Columns that a lane needs in the live view."""
_COMMAND_LINES = 24
"""The least height of a screen that also shows the suggested command."""
_LEVEL_STYLE = {"good": "green", "busy": "cyan", "warn": "yellow", "bad": "bold red"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One answer of a worker."""

    status: WorkerStatus
    as_of: datetime
    """The worker's clock when it answered."""


def full_view(snapshot: Snapshot, address: str | None = None) -> RenderableType:
    """Format everything, at any length. `address`: the worker's URL, for suggested commands."""
    status = snapshot.status
    found = troubles(status, worker=address)
    level, line = headline(status, found)
    parts: list[RenderableType] = [_title(status), Text(printable(line), style=_LEVEL_STYLE[level])]
    parts += [Text(printable(note), style="dim") for note in (notes(status) if found else ())]
    parts += [Text(f"  {printable(each)}", style="dim") for each in (found[0].below if found else ())]
    parts.append(_summary(snapshot, None))
    parts += handler_lines(status)
    parts += [Text(printable(line), style="red") for line in _alarms(status, found)]
    parts += [Text(printable(f"{each.name} is {each.told}"), style="cyan") for each in status.pauses]
    parts += [Text(command, style="bold") for each in found for command in each.commands]
    parts.append(grids.tables_grid(status, None, None, None))
    parts += _more(status.tables_omitted)
    if waiting := figures.waiting_tables(status):
        parts.append(waiting_grid(waiting, snapshot.as_of, box.SIMPLE_HEAD))
    parts.append(grids.lane_grid(status, 1, len(status.lanes)))
    return Group(*parts, grids.partitions_grid(status, None, None, None))


def summary_line(snapshot: Snapshot, rates: figures.Rates) -> str:
    """Format one line for a log or a pipe."""
    time = snapshot.as_of.strftime("%H:%M:%S")
    return f"{time} {snapshot.status.state} · {_summary(snapshot, rates).plain}"


@dataclass(frozen=True, slots=True)
class LiveView:
    """A view that fits the screen, and says how much did not fit."""

    snapshot: Snapshot
    rates: figures.Rates
    address: str
    lost: str | None = None
    """Why the worker gave no newer answer."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        status = self.snapshot.status
        width, height = options.max_width, options.height or console.height
        parts = self._head(width, height)
        command = self._command() if height >= _COMMAND_LINES else None
        # The rows left, without three headings and the last line. Tables get the remainder.
        rows = height - len(parts) - 4
        if command is not None:
            parts.append(command)
            rows -= len(command.wrap(console, width))
        columns = max(1, width // _LANE_CELL)
        lane_rows = -(-len(status.lanes) // columns)
        for_lanes = min(lane_rows, max(2, rows // 3))
        for_partitions = min(len(status.partitions), max(2, rows // 4))
        waiting = figures.still_waiting(status)
        for_waiting = min(len(waiting), rows // 5)
        if for_waiting:
            rows -= for_waiting + 1  # one more for the heading
        all_tables = len(status.tables) + status.tables_omitted
        for_tables = min(all_tables, max(2, rows - for_lanes - for_partitions))
        spare = max(0, rows - for_lanes - for_partitions - for_tables)
        for_lanes = min(lane_rows, for_lanes + spare)
        spare = max(0, rows - for_lanes - for_partitions - for_tables)
        for_partitions = min(len(status.partitions), for_partitions + spare)

        shown = min(len(status.tables), _fit(all_tables, for_tables))
        parts.append(grids.tables_grid(status, self.rates, shown, width))
        parts += _more(all_tables - shown)
        if for_waiting:
            shown = _fit(len(waiting), for_waiting)
            parts.append(waiting_grid(waiting[:shown], self.snapshot.as_of, None))
            parts += _more(len(waiting) - shown)
        shown_rows = _fit(lane_rows, for_lanes)
        parts.append(grids.lane_grid(status, columns, shown_rows))
        parts += _more(len(status.lanes) - columns * shown_rows)
        shown = _fit(len(status.partitions), for_partitions)
        parts.append(grids.partitions_grid(status, self.rates, shown, width))
        parts += _more(len(status.partitions) - shown)
        parts.append(_one_line("q quits", "dim"))
        yield Group(*parts)

    def _head(self, width: int, height: int) -> list[RenderableType]:
        """Format the problem, figures, handlers and alarms, one line each."""
        status = self.snapshot.status
        found = troubles(status)
        alarms = [f"No newer answer: {self.lost}"] if self.lost else []
        alarms += [*(found[0].below if found else ()), *_alarms(status, found)]
        shown_alarms = _fit(len(alarms), max(2, height // 8))
        title = Table.grid(expand=True)
        title.add_column(no_wrap=True, overflow="ellipsis")
        title.add_column(justify="right", style="dim", no_wrap=True)
        title.add_row(_title(status), self.address)
        handlers = handler_lines(status)[: max(1, height // 8)]
        level, line = headline(status, found)
        parts: list[RenderableType] = [title, _one_line(line, _LEVEL_STYLE[level])]
        parts.append(_summary(self.snapshot, self.rates))
        parts += handlers
        parts += [_one_line(line, "red") for line in alarms[:shown_alarms]]
        parts += _more(len(alarms) - shown_alarms)
        return parts

    def _command(self) -> Text | None:
        """Return the command that helps with the worst problem."""
        found = troubles(self.snapshot.status, worker=self.address)
        if not found or not found[0].commands:
            return None
        return Text(found[0].commands[-1], style="bold", overflow="fold")


def _fit(have: int, lines: int) -> int:
    """Return how many of `have` items fit on `lines` lines, if the others need a line for their number."""
    return have if have <= lines else max(0, lines - 1)


def _more(hidden: int) -> list[RenderableType]:
    return [_one_line(f"... and {hidden:,} more", "dim")] if hidden > 0 else []


def _one_line(text: str, style: str) -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _title(status: WorkerStatus) -> Text:
    return Text.assemble(
        (printable(status.name), "bold"),
        "  ",
        (status.state, grids.STATE_STYLE[status.state]),
        (f"  binlane {status.version}, up {duration(status.uptime_seconds)}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _summary(snapshot: Snapshot, rates: figures.Rates | None) -> Text:
    status = snapshot.status
    queued = sum(lane.queued_bytes for lane in status.lanes)
    limit = "" if status.max_bytes is None else f"/{size(status.max_bytes)}"
    records = sum(lane.queued_records for lane in status.lanes)
    parts: list[tuple[str, str]] = []
    # The most important first, because a narrow screen cuts off the end.
    for state in ("blocked", "retrying"):
        if tables := sum(table.state == state for table in status.tables):
            parts.append((f"{tables:,} {state}", grids.STATE_STYLE[state]))
    if paused := sum(each.paused for each in status.partitions):
        parts.append((f"{paused:,} paused", "yellow"))
    when = figures.outlook(status)
    parts.append((f"lag {count(figures.lag_of(status))}{f' ({when})' if when else ''}", ""))
    if rates is not None and rates.total is not None:
        parts.append((f"{rates.total:,.0f}/s", ""))
    parts.append((f"checkpoint {age(status.checkpoint.last_success, snapshot.as_of)}", ""))
    parts.append((f"lanes {records:,} ({size(queued)}{limit})", ""))
    parts.append((figures.drain_cost(status), ""))
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, (part, style) in enumerate(parts):
        text.append(" · " if number else "", "dim")
        text.append(part, style)
    return text


def _alarms(status: WorkerStatus, found: list[Trouble]) -> list[str]:
    lines = [status.error] if status.error else []
    lines += [f"{each.what}: {each.error}" for each in of_kafka(status, "CONFIG", "CONFIG") if each.error]
    lines += not_begun(status)
    if status.checkpoint.last_error:
        lines.append(f"checkpoint: {status.checkpoint.last_error}")
    stuck = [each for each in found if each.runbook == "BinlaneHeadStuck"]
    lines += [": ".join(filter(None, (each.what, each.error))) for each in stuck]
    failing = [table for table in figures.ranked(status.tables) if table.error and table.state != "paused"]
    lines += [f"{table.table}: {table.error}" for table in failing]
    return lines + handler_alarms(status)
