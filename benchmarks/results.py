"""Results of a benchmark, printed as tables and written as JSON."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "Goal", "Report", "at_least", "at_most", "machine", "show", "write"]

Figure = float | int | str | None


@dataclass(frozen=True)
class Goal:
    """One goal. It is met if `ratio` (measured / target) is at or above 1 for `at least`, at or below 1 for
    `at most`."""

    text: str
    kind: Literal["at least", "at most"]
    target: float
    measured: float
    unit: str
    peer: str = ""
    """The peer that set the target in this run; empty for a fixed target."""

    @property
    def ratio(self) -> float:
        if self.target == 0:
            return 1.0 if self.measured == 0 else float("inf")
        return self.measured / self.target

    @property
    def met(self) -> bool:
        if self.kind == "at least":
            return self.measured >= self.target
        return self.measured <= self.target


def at_least(target: float, measured: float, unit: str, text: str, peer: str = "") -> Goal:
    return Goal(text, "at least", target, measured, unit, peer)


def at_most(target: float, measured: float, unit: str, text: str, peer: str = "") -> Goal:
    return Goal(text, "at most", target, measured, unit, peer)


@dataclass
class Report:
    """The figures of one benchmark. `columns`: key of a row -> its heading."""

    name: str
    title: str
    columns: Mapping[str, str]
    rows: list[dict[str, Figure]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """The meaning of the figures; the missing peers and the reasons."""

    def row(self, **figures: Figure) -> None:
        """Add a row. Figures without a column go into the JSON file only."""
        self.rows.append(figures)


def show(report: Report, console: Console) -> None:
    """Print the figures, the goals and the notes."""
    table = Table(title=report.title, title_justify="left")
    for place, heading in enumerate(report.columns.values()):
        table.add_column(heading, justify="right" if place else "left")
    for row in report.rows:
        table.add_row(*(_text(row.get(key)) for key in report.columns))
    console.print(table)
    if report.goals:
        goals = Table(show_edge=False)
        for heading in ("Goal", "Target", "Measured", "Ratio", "Met"):
            goals.add_column(heading, justify="left" if heading in {"Goal", "Met"} else "right")
        for goal in report.goals:
            text = f"{goal.text} ({goal.peer})" if goal.peer else goal.text
            target = f"{goal.kind} {_text(goal.target)} {goal.unit}"
            met = "[green]yes[/]" if goal.met else "[bold red]no[/]"
            goals.add_row(text, target, f"{_text(goal.measured)} {goal.unit}", f"{goal.ratio:.2f}", met)
        console.print(goals)
    for note in report.notes:
        console.print(f"  {note}", style="dim", highlight=False)
    console.print()


def write(report: Report, folder: Path, *, quick: bool) -> Path:
    """Write `<name>.json` into the folder, with the machine and the time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{report.name}.json"
    content = {
        "name": report.name,
        "title": report.title,
        "quick": quick,
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "columns": dict(report.columns),
        "rows": report.rows,
        "goals": [
            {
                "goal": goal.text,
                "kind": goal.kind,
                "target": goal.target,
                "measured": goal.measured,
                "unit": goal.unit,
                "ratio": goal.ratio,
                "met": goal.met,
                "peer": goal.peer,
            }
            for goal in report.goals
        ],
        "notes": report.notes,
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def machine() -> dict[str, Figure]:
    """Describe the machine of the measurement."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages * size / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _text(figure: Figure) -> str:
    if figure is None:
        return "-"
    if isinstance(figure, str):
        return figure
    if isinstance(figure, int) or abs(figure) >= 1000:
        return f"{figure:,.0f}"
    return f"{figure:.3g}" if abs(figure) < 0.1 else f"{figure:.2f}"
