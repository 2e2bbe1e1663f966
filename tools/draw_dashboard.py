"""Draw the dashboard's panels from a Prometheus into one picture, without Grafana.

python tools/draw_dashboard.py [PROMETHEUS] [FILE] [--minutes N] [--sections N]
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import time
from pathlib import Path
from typing import Any

import httpx
import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

__all__ = ["draw"]

DASHBOARD = Path(__file__).parents[1] / "k8s" / "components" / "monitoring" / "dashboard.json"
Labels = dict[str, str]
Series = tuple[str, list[float], list[float]]
"""(name in the legend, minutes before now, values)"""


class Source:
    """A Prometheus, queried for a range that ends now."""

    def __init__(self, url: str, minutes: float, points: int = 200) -> None:
        self._url = url
        self._end = time.time()
        self._seconds = minutes * 60
        self._step = max(1.0, self._seconds / points)

    def series(self, target: dict[str, Any]) -> list[Series]:
        """Return the series of a panel's target. Raises httpx.HTTPError, and KeyError for an error answer."""
        expr = target["expr"].replace("$namespace", ".*").replace("$job", ".*")
        expr = expr.replace("$__rate_interval", f"{max(5, int(self._step * 4))}s")
        asked = {"query": expr, "start": self._end - self._seconds, "end": self._end, "step": self._step}
        answer = httpx.get(f"{self._url}/api/v1/query_range", params=asked, timeout=30).json()
        if answer["status"] != "success":
            raise KeyError(f"{expr}: {answer.get('error')}")
        found = []
        for each in answer["data"]["result"]:
            minutes = [(float(moment) - self._end) / 60 for moment, _ in each["values"]]
            values = [float(value) for _, value in each["values"]]
            found.append((_legend(target["legendFormat"], each["metric"]), minutes, values))
        return found


def draw(url: str, file: Path, minutes: float, sections: int | None = None) -> None:
    """Draw panels of the last `minutes`, placed as on the dashboard: of the first `sections`, or all.

    Raises httpx.HTTPError, KeyError."""
    panels = _first(json.loads(DASHBOARD.read_text())["panels"], sections)
    source = Source(url, minutes)
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(20, rows * 0.42), layout="none")
    for panel in panels:
        place = panel["gridPos"]
        left, width = place["x"] / 24, place["w"] / 24
        bottom, height = 1 - (place["y"] + place["h"]) / rows, place["h"] / rows
        if panel["type"] == "row":
            figure.text(0.01, bottom + height * 0.2, panel["title"], fontsize=13, fontweight="bold")
            continue
        inner = (left + 0.028, bottom + height * 0.24, width - 0.036, height * 0.58)
        axes = figure.add_axes(inner)
        axes.set_title(panel["title"], fontsize=9, loc="left")
        shown = [each for target in panel["targets"] for each in source.series(target)]
        _DRAWN[panel["type"]](axes, panel, shown)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=75)
    plt.close(figure)
    # A few colours are enough, at a third of the size.
    Image.open(drawn).convert("RGB").quantize(64).save(file, optimize=True)


def _first(panels: list[dict[str, Any]], sections: int | None) -> list[dict[str, Any]]:
    begun = itertools.accumulate(panel["type"] == "row" for panel in panels)
    return [
        panel for panel, number in zip(panels, begun, strict=True) if sections is None or number <= sections
    ]


def _lines(axes: Axes, panel: dict[str, Any], shown: list[Series]) -> None:
    factor, unit = _SHOWN_AS.get(panel["fieldConfig"]["defaults"]["unit"], (1.0, ""))
    for name, minutes, values in shown:
        axes.plot(minutes, [value * factor for value in values], linewidth=1.2, label=name)
    axes.set_ylim(bottom=0, top=_times(panel["fieldConfig"]["defaults"].get("max"), factor))
    axes.set_title(unit, fontsize=8, loc="right")
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    if shown:
        axes.legend(fontsize=7, loc="upper center", ncols=4, frameon=False, bbox_to_anchor=(0.5, -0.12))
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center")


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _number(axes: Axes, panel: dict[str, Any], shown: list[Series]) -> None:
    value = shown[0][2][-1] if shown else float("nan")
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    color = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
    axes.set_facecolor({"green": "#56a64b", "orange": "#ff9830", "red": "#e02f44", "blue": "#3274d9"}[color])
    unit = panel["fieldConfig"]["defaults"]["unit"]
    text = "no data" if not shown else f"{value:,.0f}{' s' if unit == 's' else ''}"
    axes.text(0.5, 0.4, text, transform=axes.transAxes, ha="center", fontsize=18, color="white")
    axes.set_xticks([])
    axes.set_yticks([])


def _rows(axes: Axes, panel: dict[str, Any], shown: list[Series]) -> None:
    now = sorted(name for name, minutes, _ in shown if minutes[-1] > -0.2)
    axes.axis("off")
    text = "\n".join(now[:14]) or "none"
    axes.text(0, 1, text, transform=axes.transAxes, va="top", fontsize=7, family="monospace")


_SHOWN_AS = {
    "bytes": (1 / 1024**2, "MiB"),
    "percentunit": (100.0, "%"),
    "s": (1.0, "s"),
    "reqps": (1.0, "a second"),
    "ops": (1.0, "a second"),
}
_DRAWN = {"timeseries": _lines, "stat": _number, "table": _rows}


def _legend(text: str, labels: Labels) -> str:
    if not text:
        hidden = ("__name__", "alertstate", "job")
        return " ".join(f"{value}" for name, value in labels.items() if name not in hidden)
    for name, value in labels.items():
        text = text.replace("{{" + name + "}}", value)
    return text


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("prometheus", nargs="?", default="http://localhost:9090")
    options.add_argument("file", nargs="?", type=Path, default=Path("dashboard.png"))
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--sections", type=int)
    given = options.parse_args()
    draw(given.prometheus, given.file, given.minutes, given.sections)
