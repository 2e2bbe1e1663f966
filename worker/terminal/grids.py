"""Format tables, partitions and lanes for a terminal, those with problems first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from rich import box
from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.style import Style
from rich.table import Table
from rich.text import Text

from worker.observing.overview import figures
from worker.observing.status import LaneStatus, PartitionStatus, TableStatus, WorkerStatus
from worker.observing.visible_text import count, duration, printable

STATE_STYLE = {
    "running": "green",
    "starting": "cyan",
    "draining": "yellow",
    "halted": "bold red",
    "blocked": "bold red",
    "retrying": "yellow",
    "paused": "cyan",
    "queued": "",
    "idle": "dim",
    "stopped": "dim",
}
_Row = TypeVar("_Row")
_WINDOW = 12
"""Width of a partition's window, in columns."""
_UNREAD = 4
_SHADES = "░▒▓█"
_RATE = "Records/s"
_LEFT = {"State", "Window"}
_WIDE, _USUAL, _NARROW = 100, 80, 50
"""Widths of the terminal below which table columns are left out."""


def tables_grid(
    status: WorkerStatus, rates: figures.Rates | None, limit: int | None, width: int | None
) -> Table:
    """At most `limit` tables. `width`: fewer columns if it is narrow; None: all columns, with lines."""
    columns: dict[str, Callable[[TableStatus], RenderableType]] = {
        "State": _state,
        "Lane": lambda each: str(each.lane),
        "Queued": lambda each: count(each.queued_records),
        "Records/s": lambda each: count(rates.tables.get((each.table, each.lane)) if rates else None),
        "Finished": lambda each: count(each.finished_records),
        "Delay": lambda each: duration(each.delay_seconds),
    }
    if rates is None:
        del columns[_RATE]
    name = f"Tables {len(status.tables) + status.tables_omitted:,}"
    rows = [(each.table, each) for each in figures.ranked(status.tables)[:limit]]
    least = {"Lane": _USUAL, "Queued": _USUAL, "Finished": _USUAL, _RATE: _NARROW}
    return _grid(name, columns, rows, least, width)


def partitions_grid(
    status: WorkerStatus, rates: figures.Rates | None, limit: int | None, width: int | None
) -> Table:
    """See `tables_grid`."""
    columns: dict[str, Callable[[PartitionStatus], RenderableType]] = {
        "State": _reading,
        "Window": window,
        "Lag": lambda each: count(each.lag),
        "Committed": lambda each: count(each.committed),
        "Records/s": lambda each: count(
            rates.partitions.get((each.topic, each.partition)) if rates else None
        ),
        "Unfinished": lambda each: count(each.unfinished),
        "Delay": lambda each: duration(each.delay_seconds),
    }
    if rates is None:
        del columns[_RATE]
    found = figures.partitions_by_trouble(status)[:limit]
    rows = [(f"{each.topic} [{each.partition}]", each) for each in found]
    least = {"Unfinished": _WIDE, "State": _USUAL, "Committed": _USUAL, _RATE: _USUAL, "Window": _NARROW}
    return _grid(f"Partitions {len(status.partitions):,}", columns, rows, least, width)


def _grid(
    name: str,
    columns: Mapping[str, Callable[[_Row], RenderableType]],
    rows: Iterable[tuple[str, _Row]],
    least: Mapping[str, int],
    width: int | None,
) -> Table:
    """Create a grid of the columns that fit. `least`: column -> the width that it needs."""
    shown = [title for title in columns if width is None or width >= least.get(title, 0)]
    grid = grid_of(name, shown, box.SIMPLE_HEAD if width is None else None)
    for told, row in rows:
        grid.add_row(Text(printable(told)), *(columns[title](row) for title in shown))
    return grid


def window(partition: PartitionStatus) -> Text:
    """Draw a partition from its committed offset to its end. Finished records that are not committed come
    first, then a bar for the first unfinished record. Shades after it show what is finished ahead, and dots,
    on at most four of twelve columns, what is unread."""
    position = partition.position or 0
    begin = partition.first_unfinished if partition.first_unfinished is not None else position
    committed = begin if partition.committed is None else partition.committed
    done, left = max(0, begin - committed), max(0, position - begin)
    unread = partition.unread or 0
    text = Text(no_wrap=True)
    if done + left == 0:
        return text.append("·" * _WINDOW, "dim") if unread else text.append("━" * _WINDOW, "green")
    tail = min(_UNREAD, -(-unread * _WINDOW // (done + left + unread)))
    room = _WINDOW - tail
    before = min(room - 2 if left else room, round(done / (done + left) * room))
    text.append("━" * before, "green")
    if left:
        text.append("┃", "bold red" if partition.stuck is not None else "yellow")
        behind = room - before - 1
        parts = partition.window or [0.0]
        for place in range(behind):
            share = parts[place * len(parts) // behind]
            text.append(_SHADES[round(share * (len(_SHADES) - 1))], "green" if share >= 0.5 else "yellow")
    return text.append("·" * tail, "dim")


def _state(table: TableStatus) -> Text:
    state = f"retry {table.attempt}" if table.state == "retrying" and table.attempt else table.state
    return Text(state, style=STATE_STYLE[table.state])


def _reading(partition: PartitionStatus) -> Text:
    if partition.stuck is not None:
        return Text("stuck", style="bold red")
    if partition.standstill_seconds >= 1:
        return Text("stands still", style="bold red")
    if not partition.paused:
        return Text("reading", style="dim")
    why = partition.paused_by
    return Text("paused" if why in (None, "lanes") else f"paused: {why}", style="yellow")


def grid_of(name: str, titles: Iterable[str], lines: box.Box | None) -> Table:
    """Create a table whose first column gets the remaining width."""
    grid = Table(
        box=lines, expand=lines is None, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False
    )
    grid.add_column(name, ratio=1 if lines is None else None, no_wrap=True, overflow="ellipsis")
    for title in titles:
        grid.add_column(title, justify="left" if title in _LEFT else "right", no_wrap=True)
    return grid


def _bar(status: WorkerStatus, lane: LaneStatus) -> ProgressBar:
    full = status.lane_max_records or max(1, *(each.queued_records for each in status.lanes), 1)
    style = Style(color="yellow" if lane.queued_records >= 0.9 * full else "cyan")
    return ProgressBar(full, min(full, lane.queued_records), 10, complete_style=style, finished_style=style)


def lane_grid(status: WorkerStatus, columns: int, rows: int) -> Table:
    """Arrange lanes side by side, as many as fit, in rows."""
    grid = Table(box=None, expand=True, pad_edge=False, padding=(0, 1), header_style="bold")
    working = sum(lane.running_table is not None for lane in status.lanes)
    title = f"Lanes {working:,} of {len(status.lanes):,} at work"
    for column in range(columns):
        grid.add_column(title if column == 0 else "", ratio=1, no_wrap=True)
    lanes = figures.lanes_by_trouble(status)[: columns * rows]
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


def _work(lane: LaneStatus) -> Text:
    if lane.running_table is None:
        return Text("idle", style="dim")
    return Text.assemble((duration(lane.running_seconds), "dim"), " ", printable(lane.running_table))
