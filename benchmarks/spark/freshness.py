"""Times of changes from their source's commit until they could be queried."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spark.feed import SteadyFeed
from benchmarks.spark.watch import History

__all__ = ["Freshness", "measure", "plot"]


@dataclass(frozen=True)
class Freshness:
    """Seconds for each change, in the order of their creation."""

    made: Sequence[float]
    """Seconds since the first."""
    seconds: Sequence[float]
    unseen: int
    """Changes that never became visible during the run. They count as visible at its end."""

    def at(self, share: float) -> float:
        """Return the percentile: `share` of the changes took at most this long."""
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    @property
    def longest(self) -> float:
        return max(self.seconds)

    def by_second(self, share: float) -> tuple[list[float], list[float]]:
        """Return (second of creation, percentile of the changes created in it)."""
        seconds: dict[int, list[float]] = {}
        for made, took in zip(self.made, self.seconds, strict=True):
            seconds.setdefault(int(made), []).append(took)
        places = sorted(seconds)
        return [float(place) for place in places], [
            sorted(seconds[place])[int(share * len(seconds[place]))] for place in places
        ]


def measure(
    feed: SteadyFeed,
    histories: Mapping[int, History],
    window: tuple[int, int],
    end_ms: int,
    tables: Iterable[int] | None = None,
) -> Freshness:
    """Measure the changes with numbers in `window` (first, and one beyond the last), of some tables or all.

    `end_ms` is the time of the last look.
    """
    wanted = set(histories if tables is None else tables)
    made, took = array("d"), array("d")
    unseen = 0
    begin = feed.source_time(window[0])
    for number in range(*window):
        table = feed.tables[number - feed.first]
        if table not in wanted:
            continue
        source = feed.source_time(number)
        visible = histories[table].visible_at(number)
        if visible is None:
            unseen += 1
            visible = end_ms
        made.append((source - begin) / 1e3)
        took.append((visible - source) / 1e3)
    return Freshness(made, took, unseen)


def plot(path: Path, title: str, lines: Mapping[str, Freshness]) -> None:
    """Draw a PNG: for each line, the 95th percentile of each second's changes, and the median as dots."""
    # The import takes half a second. A run without plots does not need it.
    from matplotlib.figure import Figure  # noqa: PLC0415 (see above)

    figure = Figure(figsize=(9, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    for name, freshness in lines.items():
        drawn = axes.plot(*freshness.by_second(0.95), label=f"{name}: p95", linewidth=1.6)
        axes.plot(*freshness.by_second(0.5), color=drawn[0].get_color(), linewidth=0.9, linestyle=":")
    axes.set_yscale("log")
    axes.set_xlabel("seconds of the run, by the changes' source time")
    axes.set_ylabel("seconds until queryable")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(visible=True, which="both", alpha=0.25)
    figure.legend(loc="outside lower center", fontsize=8, ncols=3, title="dotted: p50", title_fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
