"""`python -m storm.picture FOLDER PNG`: the samples of a run, drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from storm.parts.sampling import Sample, read_samples

__all__ = ["draw"]

_MIB = 1 << 20


def draw(samples: list[Sample], faults: list[float], spared: str, png: Path) -> None:
    """faults: seconds from the first sample to each. `spared`: the worker that ran all the time."""
    figure, axes = plt.subplots(6, 1, figsize=(11, 13), sharex=True)
    names = list(dict.fromkeys(each.worker for each in samples))
    fields = (("rss", "RSS, MiB", _MIB), ("threads", "threads", 1), ("handles", "open files", 1))
    for plot, (name, title, unit) in zip(axes, (*fields, ("folder", "checkpoints, MiB", _MIB)), strict=False):
        for worker in names:
            own = [each for each in samples if each.worker == worker and each.rss]
            is_spared = worker == spared
            plot.plot(
                [each.seconds / 60 for each in own],
                [getattr(each, name) / unit for each in own],
                label=f"{worker} (never killed)" if is_spared else worker,
                linewidth=1.6 if is_spared else 0.7,
                zorder=3 if is_spared else 2,
            )
        plot.set_ylabel(title)
        plot.set_ylim(bottom=0)
    one = [each for each in samples if each.worker == spared]
    minutes = [each.seconds / 60 for each in one]
    axes[4].plot(minutes, [each.p50 or None for each in one], label="p50", linewidth=0.9)
    axes[4].plot(minutes, [each.p99 or None for each in one], label="p99", linewidth=0.9)
    axes[4].set_yscale("log")
    axes[4].set_ylabel("delay, s")
    axes[4].legend(loc="upper right", fontsize=8)
    axes[5].plot(minutes, [each.lag for each in one], linewidth=0.9)
    axes[5].set_ylabel("lag, records")
    axes[5].set_xlabel("minutes; each grey line is a fault")
    for plot in axes:
        for when in faults:
            plot.axvline(when / 60, color="0.85", linewidth=0.7, zorder=1)
        plot.spines[["top", "right"]].set_visible(False)
    axes[0].legend(loc="lower right", fontsize=8, ncols=len(names))
    figure.tight_layout()
    figure.savefig(png, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    folder, png = map(Path, sys.argv[1:3])
    begun = [float(line) for line in (folder / "faults.txt").read_text().split()]
    draw(read_samples(folder / "samples.csv"), begun, "w1", png)
