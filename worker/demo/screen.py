"""The demo's output: steps with ticks, a bar for each table while it runs, and the report at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from worker.demo.verify import LaneWork, TableWork
from worker.observing.status import WorkerStatus
from worker.terminal.grids import tables_grid

WIDTH = 100
_LINE_SECONDS = 5.0
_REFRESH_PER_SECOND = 8


class Step:
    """A step in progress. `text` is its final line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spinner = Spinner("dots", style="cyan")
        self.tell(text)

    def tell(self, doing: str) -> None:
        """Show the current action beside the spinner."""
        self.spinner.update(text=Text(f" {doing} ...", style="dim"))


class Screen:
    """Colours and animation in a terminal, plain lines elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(highlight=False)
        if not console.is_terminal or console.width > WIDTH:
            console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
        self.console = console

    def title(self, text: str, subtitle: str) -> None:
        if self.console.is_terminal:
            content = Text.assemble((text, "bold cyan"), "\n", (subtitle, "dim"))
            self.console.print(Panel(content, border_style="cyan", padding=(0, 2)))
        else:
            self.console.print(f"{text}: {subtitle}")

    @contextmanager
    def step(self, doing: str) -> Iterator[Step]:
        """Show `doing` beside a spinner during the step; then its text, a tick and its duration."""
        step, began = Step(doing), time.monotonic()
        with (
            Live(step.spinner, console=self.console, transient=True, refresh_per_second=_REFRESH_PER_SECOND)
            if self.console.is_terminal
            else nullcontext()
        ):
            yield step
        self.done(step.text, time.monotonic() - began)

    def done(self, text: str, seconds: float) -> None:
        line = Table.grid(expand=True)
        line.add_column(width=2)
        line.add_column(ratio=1)
        line.add_column(width=8, justify="right", style="dim")
        line.add_row(Text("✓", style="bold green"), Text(text), f"{seconds:.1f} s")
        self.console.print(line)

    @contextmanager
    def progress(self, total: int) -> Iterator[Progress]:
        """Show `Progress.update`s. `total`: the records of all tables."""
        if not self.console.is_terminal:
            yield Progress(total, None, self.console)
            return
        with Live(console=self.console, transient=True, refresh_per_second=_REFRESH_PER_SECOND) as live:
            yield Progress(total, live, self.console)


class Progress:
    def __init__(self, total: int, live: Live | None, console: Console) -> None:
        self._total = total
        self._live = live
        self._console = console
        self._spinner = Spinner("dots", style="cyan")
        self._told = time.monotonic()

    def update(self, status: WorkerStatus) -> None:
        summary = self._summary(status)
        if self._live is not None:
            head = Table.grid(padding=(0, 1))
            head.add_row(self._spinner, summary)
            self._live.update(Group(head, tables_grid(status, None, None, self._console.width)))
        elif time.monotonic() - self._told >= _LINE_SECONDS:
            self._told = time.monotonic()
            self._console.print(f"  {summary.plain}")

    def _summary(self, status: WorkerStatus) -> Text:
        finished = sum(table.finished_records for table in status.tables)
        busy = sum(lane.running_table is not None for lane in status.lanes)
        committed = sum(partition.committed or 0 for partition in status.partitions)
        if status.state == "starting":
            return Text("the worker starts Spark ...", style="dim")
        return Text.assemble(
            f"{finished:,} of {self._total:,} messages written",
            (f" · {busy} of {len(status.lanes)} lanes at work · {committed:,} committed", "dim"),
        )


_MOST_SHOWN = 10


class TableResult(NamedTuple):
    work: TableWork
    source_rows: int
    replica_rows: int
    order_faults: list[str]
    differences: list[str]


class Result(NamedTuple):
    tables: Sequence[TableResult]
    lanes: Sequence[LaneWork]
    most_at_once: int
    mean_at_once: float
    worked_seconds: float
    """From the beginning of the first batch until all were handled."""
    faults: Sequence[str]
    """Other failures, such as the worker's exit code."""

    @property
    def good(self) -> bool:
        return not self.faults and not any(table.order_faults or table.differences for table in self.tables)


def show_result(console: Console, result: Result, *, seconds: float) -> None:
    console.print()
    console.print(_lanes(result))
    console.print(
        Text.assemble(
            "  At once: ",
            (f"{result.most_at_once} lanes", "bold"),
            f" at most, {result.mean_at_once:.1f} on average, over {result.worked_seconds:.1f} s of work.",
        )
    )
    console.print()
    console.print(_tables(result))
    _faults(console, result)
    console.print()
    _verdict(console, result, seconds)


def _lanes(result: Result) -> Table:
    table = _table("What each lane did")
    for name in ("lane", "batches", "changes", "busy s", "busy %"):
        table.add_column(name, justify="right")
    table.add_column("tables", ratio=1, overflow="fold")
    for lane in result.lanes:
        share = lane.busy_seconds / result.worked_seconds if result.worked_seconds else 0.0
        table.add_row(
            str(lane.lane),
            f"{lane.batches:,}",
            f"{lane.changes:,}",
            f"{lane.busy_seconds:.1f}",
            f"{share:.0%}",
            Text(", ".join(lane.tables), style="dim"),
        )
    return table


def _tables(result: Result) -> Table:
    table = _table("What each table did, and its rows in the source and in Spark")
    table.add_column("table", ratio=1)
    for name in ("lanes", "batches", "changes", "merges", "lag s"):
        table.add_column(name, justify="right")
    table.add_column("order", justify="center")
    for name in ("source", "replica", "differ"):
        table.add_column(name, justify="right")
    for one in result.tables:
        _add_row(table, Text(one.work.table), one.work.lanes, [one])
    table.add_section()
    _add_row(table, Text("all", style="bold"), (), result.tables)
    return table


def _add_row(table: Table, name: Text, lanes: Sequence[int], results: Sequence[TableResult]) -> None:
    """Add a row with the sums of these tables."""
    works, different = [one.work for one in results], sum(len(one.differences) for one in results)
    table.add_row(
        name,
        Text(" ".join(map(str, lanes)), style="dim"),
        f"{sum(work.batches for work in works):,}",
        f"{sum(work.changes for work in works):,}",
        f"{sum(work.merges for work in works):,}",
        f"{max((work.behind_seconds for work in works), default=0.0):.1f}",
        _mark(not any(one.order_faults for one in results)),
        f"{sum(one.source_rows for one in results):,}",
        f"{sum(one.replica_rows for one in results):,}",
        Text(f"{different:,}", "bold red" if different else "green"),
    )


def _faults(console: Console, result: Result) -> None:
    faults = list(result.faults)
    for one in result.tables:
        faults += [f"{one.work.table}: order: {fault}" for fault in one.order_faults]
        faults += [f"{one.work.table}: {difference}" for difference in one.differences]
    if faults:
        console.print()
    for fault in faults[:_MOST_SHOWN]:
        console.print(Text.assemble(("✗ ", "bold red"), fault))
    if len(faults) > _MOST_SHOWN:
        console.print(f"  ... and {len(faults) - _MOST_SHOWN:,} more")


def _verdict(console: Console, result: Result, seconds: float) -> None:
    changes = sum(one.work.changes for one in result.tables)
    if result.good:
        told = (
            f"✓ {changes:,} changes of {len(result.tables)} tables: each table in source order, and every "
            "replica row equal to its source row."
        )
        style = "bold green"
    else:
        told = "✗ The replica differs from the source, or the order was not kept: see above."
        style = "bold red"
    text = Text.assemble((told, style), (f" {seconds:.0f} s in all.", "dim"))
    console.print(Panel(text, border_style=style) if console.is_terminal else text)


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        expand=True,
        pad_edge=False,
    )


def _mark(good: bool) -> Text:
    return Text("✓", style="green") if good else Text("✗", style="bold red")
