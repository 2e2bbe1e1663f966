"""`python -m benchmarks.markdown [FOLDER]`: print results as tables for docs/benchmarks.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["markdown"]


def markdown(result: dict[str, Any]) -> str:
    """Return a benchmark's title, figures, goals and notes."""
    columns = result["columns"]
    lines = [f"### {result['title']}", "", *_table(list(columns.values()), _rows(result, columns)), ""]
    goals = [
        [
            f"{goal['goal']} ({goal['peer']})" if goal["peer"] else goal["goal"],
            f"{goal['kind']} {_text(goal['target'])} {goal['unit']}",
            f"{_text(goal['measured'])} {goal['unit']}",
            f"{goal['ratio']:.2f}",
            "yes" if goal["met"] else "**no**",
        ]
        for goal in result["goals"]
    ]
    if goals:
        lines += _table(["goal", "target", "measured", "ratio", "met"], goals)
    for note in result["notes"]:
        lines += ["", note]
    return "\n".join([*lines, ""])


def _rows(result: dict[str, Any], columns: dict[str, str]) -> list[list[str]]:
    return [[_text(row.get(key)) for key in columns] for row in result["rows"]]


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _text(figure: float | int | str | None) -> str:
    if figure is None:
        return "-"
    if isinstance(figure, float):
        return f"{figure:,.2f}" if abs(figure) < 1_000 else f"{figure:,.0f}"
    return f"{figure:,}" if isinstance(figure, int) else figure


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("results")
    for path in sorted(folder.glob("*.json")):
        print(markdown(json.loads(path.read_text(encoding="utf-8"))))
