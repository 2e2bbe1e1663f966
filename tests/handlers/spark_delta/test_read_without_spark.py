"""Reads without Spark are of one moment, whatever a worker does: no row is missing, or there twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import Table, shape

from handlers.spark.delta.commits.commit_notes import held_in_files
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions
from handlers.spark.read.in_duckdb import Source, read
from handlers.spark.rows.shape import Mode

ROWS = shape(id=pa.int64(), number=pa.int64())
KEYS = range(4)
STEPS = ("put", "merge", "first commit")


class Watched(LocalFiles):
    """A store that calls `watch` before and after each operation of some kinds."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds
        self.watch: Callable[[], None] = lambda: None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name not in self._kinds:
            return found

        def watched(*arguments: Any) -> Any:
            self.watch()
            made = found(*arguments)
            self.watch()
            return made

        return watched


class Worker:
    """Puts segments, merges and removes them. Segment n gives n to one key, and to all keys at first."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.files = Watched("put", "delete", "retire")
        self.table = Table(None, folder, mode=mode, merge=MergeOptions(engine="auto"))
        self.table.log = SegmentLog(self.files, self.table.ref.log_folder)
        self.table.log.load()
        self.number = 0

    def put(self) -> None:
        number = self.number + 1
        place = {"op": "insert", "topic": "cdc", "partition": 0, "index": 0, "number": number}
        self.table.put(ROWS, *({"id": key, "offset": number, **place} for key in _keys(number)))
        self.number += 1

    def merge(self, most: int) -> None:
        found = self.table.log.after(self.held)[:most]
        if found:
            note = self.table.note(found[0].number, found[-1].number)
            what = Bringing(self.table.ref, found, ROWS, note)
            assert WithoutSpark(self.table.options, self.files).apply(what)

    def tidy(self) -> None:
        self.table.log.retire(self.held)
        self.table.log.remove(self.held)

    @property
    def held(self) -> int:
        held = held_in_files(LocalFiles(), self.table.path, self.table.ref.app_id)
        return 0 if held is None else held.last

    def seen(self, files: LocalFiles | None = None) -> int:
        """The number of the segment up to which a read is, and exactly up to which."""
        found = read(Source(files or LocalFiles(), self.table.ref, "_"))
        pairs = sorted(zip(found["id"].to_pylist(), found["number"].to_pylist(), strict=True))
        newest = max((number for _, number in pairs), default=0)
        changes = [(key, number) for number in range(1, newest + 1) for key in _keys(number)]
        assert pairs == sorted(dict(changes).items() if self.table.mode == "replica" else changes)
        return newest


def _keys(number: int) -> list[int]:
    return list(KEYS) if number == 1 else [number % len(KEYS)]


@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_a_read_is_right_before_and_after_each_step_of_a_worker(tmp_path: Path, mode: Mode) -> None:
    worker, chosen, reads = Worker(tmp_path / "t", mode), random.Random(7), 0
    worker.put()

    def watch() -> None:
        nonlocal reads
        assert worker.seen() in (worker.number, worker.number + 1)  # a put is seen once it is there
        reads += 1

    worker.files.watch = watch
    for _ in range(8):
        step = chosen.choice([worker.put, lambda: worker.merge(chosen.choice([1, 9])), worker.tidy])
        step()
        watch()
    assert worker.held
    assert reads > 20


@pytest.mark.parametrize(
    ("mode", "step"),
    [
        ("replica", "merge"),
        ("replica", "first commit"),
        pytest.param("replica", "put", marks=pytest.mark.soak),
        *(pytest.param("changelog", step, marks=pytest.mark.soak) for step in STEPS),
    ],
)
def test_a_read_is_of_one_moment_whenever_a_worker_goes_on_meanwhile(
    tmp_path: Path, mode: Mode, step: str
) -> None:
    """At each operation of the reader the worker merges and removes what the reader is about to read."""
    places = 0
    for place in count():
        worker = Worker(tmp_path / f"{place}", mode)
        worker.put()
        if step != "first commit":
            worker.merge(9)
        worker.put()
        worker.put()
        files, steps = Watched("list", "read", "open", "exists"), count()

        def go_on(worker: Worker = worker, steps: Any = steps, place: int = place) -> None:
            if next(steps) == place:
                worker.put()
                worker.put()
                if step != "put":
                    worker.merge(9)
                    worker.put()
                    worker.tidy()

        files.watch = go_on
        assert 3 <= worker.seen(files) <= worker.number
        if worker.number == 3:
            break
        places = place
    assert places > 10


@pytest.mark.parametrize("mode", ["replica", pytest.param("changelog", marks=pytest.mark.soak)])
def test_a_read_beside_a_worker_is_of_one_moment(tmp_path: Path, mode: Mode) -> None:
    worker, ended = Worker(tmp_path / "t", mode), threading.Event()
    worker.put()

    def work() -> None:
        try:
            for _ in range(25):
                worker.put()
                worker.merge(9)
                worker.tidy()
        finally:
            ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    seen = []
    while not ended.is_set():
        before = worker.number
        seen.append(worker.seen())
        assert before <= seen[-1] <= worker.number + 1
    thread.join()
    assert seen == sorted(seen)
    assert worker.seen() == 26
