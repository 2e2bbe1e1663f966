"""The demo's output: steps with ticks, a bar for each table while it runs, and the report at its end. It
says whether the replica equals the source's rows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from handlers.values.change_json import duration_text
from worker.observing.status import WorkerStatus
from worker.terminal.grids import tables_grid

Row = Mapping[str, Any]


class Difference(NamedTuple):
    """A row that differs between the two sides."""

    table: str
    row: str
    """Its key, or the whole row for a table without one."""
    what: str


def compare_columns(table: str, truth: Sequence[str], found: Sequence[str]) -> list[Difference]:
    """Return one difference if the columns, or their order, differ from the source's."""
    if list(truth) == list(found):
        return []
    what = f"its columns are {', '.join(found)}; in the source {', '.join(truth)}"
    return [Difference(table, "", what)]


def compare(table: str, key: Sequence[str], truth: Iterable[Row], found: Iterable[Row]) -> list[Difference]:
    """Return the rows that differ, in the source's order. Values are compared with their types."""
    expected = [_comparable(row) for row in truth]
    actual = [_comparable(row) for row in found]
    if not key:
        return _compare_bags(table, expected, actual)
    differences = []
    by_key = {tuple(row[column] for column in key): row for row in actual}
    if len(by_key) < len(actual):
        differences.append(Difference(table, "", f"{len(actual) - len(by_key)} rows have a duplicate key"))
    for row in expected:
        at = tuple(row[column] for column in key)
        other = by_key.pop(at, None)
        if other is None:
            differences.append(Difference(table, _shown(at), "is not in the replica"))
            continue
        for column, value in row.items():
            there = other.get(column)
            # Ints and decimals are both exact (`bigint unsigned` becomes a decimal).
            exact = isinstance(there, int | Decimal) and isinstance(value, int | Decimal)
            if there != value or not (type(there) is type(value) or exact):
                what = f"{column} is {there!r} in the replica, {value!r} in the source"
                differences.append(Difference(table, _shown(at), what))
    differences += [Difference(table, _shown(at), "is not in the source") for at in by_key]
    return differences


def _comparable(row: Row) -> dict[str, Any]:
    return {column: _kept(value) for column, value in row.items()}


def _kept(value: Any) -> Any:
    """Convert a source value to the Spark handler's form."""
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return list(value) if isinstance(value, tuple) else value


def _compare_bags(
    table: str, expected: Sequence[dict[str, Any]], actual: Sequence[dict[str, Any]]
) -> list[Difference]:
    wanted, there = (Counter(repr(sorted(row.items())) for row in rows) for rows in (expected, actual))
    missing = [Difference(table, row, "is not in the replica") for row in (wanted - there).elements()]
    return missing + [Difference(table, row, "is not in the source") for row in (there - wanted).elements()]


def _shown(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key))


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
    table: str
    changes: int
    source_rows: int
    replica_rows: int
    differences: list[str]


class Result(NamedTuple):
    tables: Sequence[TableResult]
    faults: Sequence[str]
    """Other failures, such as the worker's exit code."""

    @property
    def good(self) -> bool:
        return not self.faults and not any(table.differences for table in self.tables)


def show_result(console: Console, result: Result, *, seconds: float) -> None:
    console.print()
    console.print(_tables(result))
    _faults(console, result)
    console.print()
    _verdict(console, result, seconds)


def _tables(result: Result) -> Table:
    table = Table(
        title="Each table's changes, and its rows in the source and in Spark",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        expand=True,
        pad_edge=False,
    )
    table.add_column("table", ratio=1)
    for name in ("changes", "source", "replica", "differ"):
        table.add_column(name, justify="right")
    for one in result.tables:
        _add_row(table, Text(one.table), [one])
    table.add_section()
    _add_row(table, Text("all", style="bold"), result.tables)
    return table


def _add_row(table: Table, name: Text, results: Sequence[TableResult]) -> None:
    """Add a row with the sums of these tables."""
    different = sum(len(one.differences) for one in results)
    table.add_row(
        name,
        f"{sum(one.changes for one in results):,}",
        f"{sum(one.source_rows for one in results):,}",
        f"{sum(one.replica_rows for one in results):,}",
        Text(f"{different:,}", "bold red" if different else "green"),
    )


def _faults(console: Console, result: Result) -> None:
    faults = list(result.faults)
    for one in result.tables:
        faults += [f"{one.table}: {difference}" for difference in one.differences]
    if faults:
        console.print()
    for fault in faults[:_MOST_SHOWN]:
        console.print(Text.assemble(("✗ ", "bold red"), fault))
    if len(faults) > _MOST_SHOWN:
        console.print(f"  ... and {len(faults) - _MOST_SHOWN:,} more")


def _verdict(console: Console, result: Result, seconds: float) -> None:
    changes = sum(one.changes for one in result.tables)
    if result.good:
        tables = len(result.tables)
        told = f"✓ {changes:,} changes of {tables} tables: every replica row is equal to its source row."
        style = "bold green"
    else:
        told = "✗ The replica differs from the source: see above."
        style = "bold red"
    text = Text.assemble((told, style), (f" {seconds:.0f} s in all.", "dim"))
    console.print(Panel(text, border_style=style) if console.is_terminal else text)
