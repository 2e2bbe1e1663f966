"""The report at the end of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from worker.demo.verify import LaneWork, TableWork

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
        work = one.work
        table.add_row(
            work.table,
            Text(" ".join(map(str, work.lanes)), style="dim"),
            f"{work.batches:,}",
            f"{work.changes:,}",
            f"{work.merges:,}",
            f"{work.behind_seconds:.1f}",
            _mark(not one.order_faults),
            f"{one.source_rows:,}",
            f"{one.replica_rows:,}",
            Text("0", style="green")
            if not one.differences
            else Text(f"{len(one.differences):,}", "bold red"),
        )
    table.add_section()
    table.add_row(
        Text("all", style="bold"),
        "",
        f"{sum(one.work.batches for one in result.tables):,}",
        f"{sum(one.work.changes for one in result.tables):,}",
        f"{sum(one.work.merges for one in result.tables):,}",
        f"{max((one.work.behind_seconds for one in result.tables), default=0.0):.1f}",
        _mark(not any(one.order_faults for one in result.tables)),
        f"{sum(one.source_rows for one in result.tables):,}",
        f"{sum(one.replica_rows for one in result.tables):,}",
        f"{sum(len(one.differences) for one in result.tables):,}",
    )
    return table


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
