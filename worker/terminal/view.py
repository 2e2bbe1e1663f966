"""A worker's status in a terminal: whole, and as a live view that fits the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.style import Style
from rich.table import Table
from rich.text import Text

from worker.observing.overview.ranking import lanes_by_trouble, partitions_by_trouble, tables_by_trouble
from worker.observing.status import LaneStatus, PartitionStatus, WorkerStatus
from worker.observing.visible_text import age, count, duration, printable, size
from worker.terminal.handlers import handler_alarms, handler_lines, waiting_grid, waiting_tables
from worker.terminal.rates import Rates
from worker.terminal.stuck import stuck_alarms, unconfirmed_alarm

__all__ = ["LiveView", "Snapshot", "full_view", "summary_line"]

_STATE_STYLE = {
    "running": "green",
    "starting": "cyan",
    "draining": "yellow",
    "halted": "bold red",
    "blocked": "bold red",
    "retrying": "yellow",
    "queued": "",
    "idle": "dim",
    "stopped": "dim",
}
_LANE_CELL = 38
"""Columns a lane needs in the live view."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One answer of a worker."""

    status: WorkerStatus
    as_of: datetime
    """The worker's clock when it answered."""


def full_view(snapshot: Snapshot) -> RenderableType:
    """Everything, as long as it gets."""
    status = snapshot.status
    parts: list[RenderableType] = [_title(status), _summary(snapshot, None)]
    parts += handler_lines(status)
    parts += [Text(printable(line), style="red") for line in _alarms(status)]
    parts.append(_tables(status, None, None, box.SIMPLE_HEAD))
    parts += _more(status.tables_omitted)
    if waiting := waiting_tables(status):
        parts.append(waiting_grid(waiting, snapshot.as_of, box.SIMPLE_HEAD))
    return Group(*parts, _lane_table(status), _partitions(status, None, None, box.SIMPLE_HEAD))


def summary_line(snapshot: Snapshot, rates: Rates) -> str:
    """One line for a log or a pipe."""
    time = snapshot.as_of.strftime("%H:%M:%S")
    return f"{time} {snapshot.status.state} · {_summary(snapshot, rates).plain}"


@dataclass(frozen=True, slots=True)
class LiveView:
    """One screenful: it takes the size it is drawn in, and says how much did not fit."""

    snapshot: Snapshot
    rates: Rates
    address: str
    lost: str | None = None
    """Why the worker gave no newer answer."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        status = self.snapshot.status
        width, height = options.max_width, options.height or console.height
        alarms = ([f"No newer answer: {self.lost}"] if self.lost else []) + _alarms(status)
        shown_alarms = _fit(len(alarms), max(2, height // 8))
        title = Table.grid(expand=True)
        title.add_column(no_wrap=True, overflow="ellipsis")
        title.add_column(justify="right", style="dim", no_wrap=True)
        title.add_row(_title(status), self.address)
        handlers = handler_lines(status)[: max(1, height // 8)]
        parts: list[RenderableType] = [title, _summary(self.snapshot, self.rates), *handlers]
        parts += [_one_line(line, "red") for line in alarms[:shown_alarms]]
        parts += _more(len(alarms) - shown_alarms)

        # What is left of the screen, less three headings and the last line; tables get what others leave.
        rows = height - 2 - len(handlers) - min(len(alarms), max(2, height // 8)) - 4
        columns = max(1, width // _LANE_CELL)
        lane_rows = -(-len(status.lanes) // columns)
        for_lanes = min(lane_rows, max(2, rows // 3))
        for_partitions = min(len(status.partitions), max(2, rows // 4))
        waiting = [table for table in waiting_tables(status) if table.rows or table.error]
        for_waiting = min(len(waiting), rows // 5)
        if for_waiting:
            rows -= for_waiting + 1  # and a heading
        all_tables = len(status.tables) + status.tables_omitted
        for_tables = min(all_tables, max(2, rows - for_lanes - for_partitions))
        spare = max(0, rows - for_lanes - for_partitions - for_tables)
        for_lanes = min(lane_rows, for_lanes + spare)
        spare = max(0, rows - for_lanes - for_partitions - for_tables)
        for_partitions = min(len(status.partitions), for_partitions + spare)

        shown = min(len(status.tables), _fit(all_tables, for_tables))
        parts.append(_tables(status, self.rates, shown, None))
        parts += _more(all_tables - shown)
        if for_waiting:
            shown = _fit(len(waiting), for_waiting)
            parts.append(waiting_grid(waiting[:shown], self.snapshot.as_of, None))
            parts += _more(len(waiting) - shown)
        shown_rows = _fit(lane_rows, for_lanes)
        parts.append(_lane_grid(status, columns, shown_rows))
        parts += _more(len(status.lanes) - columns * shown_rows)
        shown = _fit(len(status.partitions), for_partitions)
        parts.append(_partitions(status, self.rates, shown, None))
        parts += _more(len(status.partitions) - shown)
        parts.append(_one_line("q quits", "dim"))
        yield Group(*parts)


def _fit(have: int, lines: int) -> int:
    """How many of `have` things to show on so many lines, when the rest takes a line to be told of."""
    return have if have <= lines else max(0, lines - 1)


def _more(hidden: int) -> list[RenderableType]:
    return [_one_line(f"... and {hidden:,} more", "dim")] if hidden > 0 else []


def _one_line(text: str, style: str) -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _title(status: WorkerStatus) -> Text:
    return Text.assemble(
        (printable(status.name), "bold"),
        "  ",
        (status.state, _STATE_STYLE[status.state]),
        (f"  binlane {status.version}, up {duration(status.uptime_seconds)}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _summary(snapshot: Snapshot, rates: Rates | None) -> Text:
    status = snapshot.status
    lags = [each.lag for each in status.partitions]
    known = [lag for lag in lags if lag is not None]
    queued = sum(lane.queued_bytes for lane in status.lanes)
    limit = "" if status.max_bytes is None else f"/{size(status.max_bytes)}"
    records = sum(lane.queued_records for lane in status.lanes)
    parts: list[tuple[str, str]] = []
    # First what a person comes for: on a narrow screen the end is cut off.
    for state in ("blocked", "retrying"):
        if tables := sum(table.state == state for table in status.tables):
            parts.append((f"{tables:,} {state}", _STATE_STYLE[state]))
    if paused := sum(each.paused for each in status.partitions):
        parts.append((f"{paused:,} paused", "yellow"))
    parts.append((f"lag {count(sum(known) if lags and len(known) == len(lags) else None)}", ""))
    if rates is not None and rates.total is not None:
        parts.append((f"{rates.total:,.0f}/s", ""))
    parts.append((f"checkpoint {age(status.checkpoint.last_success, snapshot.as_of)}", ""))
    parts.append((f"lanes {records:,} ({size(queued)}{limit})", ""))
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, (part, style) in enumerate(parts):
        text.append(" · " if number else "", "dim")
        text.append(part, style)
    return text


def _alarms(status: WorkerStatus) -> list[str]:
    lines = [status.error] if status.error else []
    lines += unconfirmed_alarm(status)
    if status.checkpoint.last_error:
        lines.append(f"checkpoint: {status.checkpoint.last_error}")
    lines += stuck_alarms(status)
    lines += [f"{table.table}: {table.error}" for table in tables_by_trouble(status) if table.error]
    return lines + handler_alarms(status)


def _tables(status: WorkerStatus, rates: Rates | None, limit: int | None, lines: box.Box | None) -> Table:
    grid = _grid(
        f"Tables {len(status.tables) + status.tables_omitted:,}",
        ("State", "Lane", "Queued", "Records/s", "Finished", "Delay"),
        lines,
        rates is not None,
    )
    for table in tables_by_trouble(status)[:limit]:
        state = f"retry {table.attempt}" if table.state == "retrying" and table.attempt else table.state
        cells: list[RenderableType] = [
            Text(printable(table.table)),
            Text(state, style=_STATE_STYLE[table.state]),
            str(table.lane),
            count(table.queued_records),
            count(rates.tables.get((table.table, table.lane)) if rates else None),
            count(table.finished_records),
            duration(table.delay_seconds),
        ]
        _add(grid, cells, rates is not None)
    return grid


def _partitions(status: WorkerStatus, rates: Rates | None, limit: int | None, lines: box.Box | None) -> Table:
    grid = _grid(
        f"Partitions {len(status.partitions):,}",
        ("State", "Lag", "Committed", "Records/s", "Unfinished", "Delay"),
        lines,
        rates is not None,
    )
    for each in partitions_by_trouble(status)[:limit]:
        cells: list[RenderableType] = [
            Text(printable(f"{each.topic} [{each.partition}]")),
            _reading(each),
            count(each.lag),
            count(each.committed),
            count(rates.partitions.get((each.topic, each.partition)) if rates else None),
            count(each.unfinished),
            duration(each.delay_seconds),
        ]
        _add(grid, cells, rates is not None)
    return grid


def _reading(partition: PartitionStatus) -> Text:
    if not partition.paused:
        return Text("reading", style="dim")
    why = partition.paused_by
    return Text("paused" if why in (None, "lanes") else f"paused: {why}", style="yellow")


_RATE_COLUMN = 4


def _grid(name: str, titles: Sequence[str], lines: box.Box | None, with_rate: bool) -> Table:
    """A table whose first column takes the room the others leave; no rate column where there are no rates."""
    grid = Table(
        box=lines, expand=lines is None, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False
    )
    grid.add_column(name, ratio=1 if lines is None else None, no_wrap=True, overflow="ellipsis")
    for number, title in enumerate(titles, start=1):
        if number != _RATE_COLUMN or with_rate:
            grid.add_column(title, justify="left" if title == "State" else "right", no_wrap=True)
    return grid


def _add(grid: Table, cells: list[RenderableType], with_rate: bool) -> None:
    if not with_rate:
        del cells[_RATE_COLUMN]
    grid.add_row(*cells)


def _bar(status: WorkerStatus, lane: LaneStatus) -> ProgressBar:
    full = status.lane_max_records or max(1, *(each.queued_records for each in status.lanes), 1)
    style = Style(color="yellow" if lane.queued_records >= 0.9 * full else "cyan")
    return ProgressBar(full, min(full, lane.queued_records), 10, complete_style=style, finished_style=style)


def _lane_grid(status: WorkerStatus, columns: int, rows: int) -> Table:
    """As many lanes side by side as there is room for, counted along the rows."""
    grid = Table(box=None, expand=True, pad_edge=False, padding=(0, 1), header_style="bold")
    working = sum(lane.running_table is not None for lane in status.lanes)
    title = f"Lanes {working:,} of {len(status.lanes):,} at work"
    for column in range(columns):
        grid.add_column(title if column == 0 else "", ratio=1, no_wrap=True)
    lanes = lanes_by_trouble(status)[: columns * rows]
    for first in range(0, len(lanes), columns):
        grid.add_row(*(_lane_cell(status, lane) for lane in lanes[first : first + columns]))
    return grid


def _lane_cell(status: WorkerStatus, lane: LaneStatus) -> Table:
    cell = Table.grid(padding=(0, 1, 0, 0), expand=True)
    cell.add_column(width=3, justify="right", style="dim", no_wrap=True)
    cell.add_column(width=10)
    cell.add_column(width=6, justify="right", no_wrap=True)
    cell.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    cell.add_row(str(lane.lane), _bar(status, lane), f"{lane.queued_records:,}", _work(lane))
    return cell


def _lane_table(status: WorkerStatus) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for title in (f"Lanes {len(status.lanes):,}", "Filled", "Records", "Bytes", "Working on"):
        grid.add_column(title, justify="right" if title in {"Records", "Bytes"} else "left", no_wrap=True)
    for lane in lanes_by_trouble(status):
        bar = _bar(status, lane)
        grid.add_row(str(lane.lane), bar, f"{lane.queued_records:,}", size(lane.queued_bytes), _work(lane))
    return grid


def _work(lane: LaneStatus) -> Text:
    if lane.running_table is None:
        return Text("idle", style="dim")
    return Text.assemble((duration(lane.running_seconds), "dim"), " ", printable(lane.running_table))
