"""The demo's output while it runs: steps with ticks, and a bar for each table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from worker.observing.status import WorkerStatus

WIDTH = 100
_LINE_SECONDS = 5.0
_REFRESH_PER_SECOND = 8
_STATES = {
    "idle": ("", "dim"),
    "queued": ("waits", "yellow"),
    "running": ("writes", "bold green"),
    "retrying": ("tries again", "bold yellow"),
    "blocked": ("is blocked", "bold red"),
    "paused": ("is paused", "cyan"),
}


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
    def progress(self, totals: Mapping[str, int]) -> Iterator[Progress]:
        """Show `Progress.update`s. `totals`: table -> its records."""
        if not self.console.is_terminal:
            yield Progress(totals, None, self.console)
            return
        with Live(console=self.console, transient=True, refresh_per_second=_REFRESH_PER_SECOND) as live:
            yield Progress(totals, live, self.console)


class Progress:
    """The worker's progress."""

    def __init__(self, totals: Mapping[str, int], live: Live | None, console: Console) -> None:
        self._totals = totals
        self._live = live
        self._console = console
        self._spinner = Spinner("dots", style="cyan")
        self._told = time.monotonic()

    def update(self, status: WorkerStatus) -> None:
        summary = self._summary(status)
        if self._live is not None:
            head = Table.grid(padding=(0, 1))
            head.add_row(self._spinner, summary)
            self._live.update(Group(head, self._bars(status)))
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
            f"{finished:,} of {sum(self._totals.values()):,} messages written",
            (f" · {busy} of {len(status.lanes)} lanes at work · {committed:,} committed", "dim"),
        )

    def _bars(self, status: WorkerStatus) -> RenderableType:
        known = {table.table.partition(".")[2]: table for table in status.tables}
        lanes = {lane.running_table: lane.lane for lane in status.lanes}
        bars = Table.grid(padding=(0, 2))
        bars.add_column(width=15)
        bars.add_column(width=40)
        bars.add_column(width=15, justify="right")
        bars.add_column(width=20)
        for name, total in self._totals.items():
            table = known.get(name)
            finished = table.finished_records if table else 0
            bar = ProgressBar(total, finished, width=40, complete_style="cyan", finished_style="green")
            count = Text.assemble(f"{finished:,}", (f" / {total:,}", "dim"))
            if finished >= total:
                state = Text("✓", style="green")
            elif table is None:
                state = Text("")
            else:
                word, style = _STATES[table.state]
                lane = f" in lane {lanes[table.table]}" if table.table in lanes else ""
                state = Text.assemble((word, style), (lane, "dim"))
            bars.add_row(Text(f"  {name}"), bar, count, state)
        return bars
