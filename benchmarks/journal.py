"""The cost of the journal at a checkpoint, and of a search in a long journal."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_most
from offsets.journal import Entry, Journal
from offsets.stores.file import FileStore
from offsets.types import Checkpoint, TopicPartition

__all__ = ["run"]

_PARTITIONS = [TopicPartition("cdc.shop", number) for number in range(100)]
_AT_ONCE = 10_000
_SEARCHES = 5
_APPEND_MICROSECONDS = 50.0
_SEARCH_SECONDS = 3.0


def run(context: Context) -> Report:
    """Search journals of up to a million entries, the default limit. Take checkpoints with and without."""
    most = context.pick(1_000_000, 10_000)
    report = Report(
        "journal",
        "Journal: at each checkpoint, an entry for each partition that moved; search by time",
        {"what": "What", "micros": "us (median)"},
    )
    folder = Path(tempfile.mkdtemp(prefix="binlane-journal-"))
    try:
        alone, with_it = _checkpoints(folder, context.pick(500, 20))
        report.row(what="checkpoint of 100 partitions to the file, without a journal", micros=alone)
        report.row(what="added by the journal", micros=with_it)
        found = []
        size = 1_000
        while size <= most:
            found.append(_searches(folder / str(size), size))
            report.row(what=f"search among {size:,} entries", micros=found[-1])
            shutil.rmtree(folder / str(size))
            size *= 10
    finally:
        shutil.rmtree(folder)
    report.goals += [
        at_most(_APPEND_MICROSECONDS, with_it / len(_PARTITIONS), "us", "an entry at a checkpoint"),
        at_most(_SEARCH_SECONDS, found[-1] / 1e6, "s", f"search among {most:,} entries"),
    ]
    report.notes.append(
        "The entries are those of ten partitions, interleaved. A search reads all files. A million is "
        "the default limit."
    )
    return report


def _checkpoints(folder: Path, count: int) -> tuple[float, float]:
    """Return microseconds of (a save, an append to the journal). Every partition moves each time."""
    store, journal = (
        FileStore(folder / "state", "replica"),
        Journal(folder / "journal", "replica", flush=60.0),
    )
    saves, appends = [], []
    for number in range(1, count + 1):
        begun = time.perf_counter()
        store.save({place: Checkpoint(number * 1_000) for place in _PARTITIONS})
        saved = time.perf_counter()
        journal.append([Entry(place, number * 1_000, number * 5_000) for place in _PARTITIONS])
        saves.append(saved - begun)
        appends.append(time.perf_counter() - saved)
    return statistics.median(saves) * 1e6, statistics.median(appends) * 1e6


def _searches(folder: Path, size: int) -> float:
    """Return microseconds."""
    journal = Journal(folder, "replica")
    places = _PARTITIONS[:10]
    for first in range(0, size, _AT_ONCE):
        journal.append(
            Entry(places[number % 10], number // 10 + 1, number // 10 * 10)
            for number in range(first, min(first + _AT_ONCE, size))
        )
    chance = random.Random(size)
    took = []
    for _ in range(_SEARCHES):
        offset = chance.randrange(2, size // 10)
        begun = time.perf_counter()
        lower, upper = journal.search(chance.choice(places), (offset - 1) * 10)
        took.append(time.perf_counter() - begun)
        if lower is None or upper is None or (lower.offset, upper.offset) != (offset - 1, offset):
            raise BenchmarkError(f"found {lower} and {upper} around {offset}")
    return statistics.median(took) * 1e6
