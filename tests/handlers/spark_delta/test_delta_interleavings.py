"""Whatever the order in which workers look at a table and commit to it: each segment is in it once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import Table, shape
from delta_model import REF, Actors, DeltaModel, Worker, every_order, in_memory

from handlers.spark.delta.commits.commit_notes import CommitNote, held_in_files
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.own_commit import NextVersion
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions

__all__ = ["in_memory"]

Make = Callable[[Actors], DeltaModel]
ROWS = shape(id=pa.int64())


def meet(
    make: Make, *known: tuple[int, int], before: int = 0, loses: int = 0, switches: int | None = None
) -> int:
    """Workers that know these parts of the log meet in every order. The longest has the log's end."""

    def run(actors: Actors) -> None:
        model = make(actors)
        if before:
            note = CommitNote("w", "spark", before, before, 0, {}).to_json(REF.app_id)
            model.commits.append((list(range(1, before + 1)), before, note))
        workers = [Worker(model, *part, loses=loses if not place else 0) for place, part in enumerate(known)]
        for worker in workers:
            actors.start(worker.work)
        actors.run()
        assert model.rows == list(range(1, max(last for _, last in known) + 1))
        assert not any(worker.merges.unmerged.waiting().rows for worker in workers)

    return every_order(run, switches=switches)


def test_two_workers_of_which_one_knows_more(in_memory: Make) -> None:
    assert meet(in_memory, (5, 9), (5, 8), before=4) > 100


def test_two_workers_that_make_the_table(in_memory: Make) -> None:
    assert meet(in_memory, (1, 2), (1, 3)) > 100


@pytest.mark.soak
def test_two_workers_of_which_one_still_knows_what_is_long_merged(in_memory: Make) -> None:
    assert meet(in_memory, (3, 9), (5, 8), before=4) > 100


def test_three_workers(in_memory: Make) -> None:
    assert meet(in_memory, (5, 9), (5, 8), (5, 6), before=4, switches=2) > 100


@pytest.mark.soak
def test_a_command_that_goes_on_without_its_worker(in_memory: Make) -> None:
    assert meet(in_memory, (5, 9), (5, 7), before=4, loses=1, switches=3) > 100


@pytest.mark.soak
@pytest.mark.timeout(1800)  # minutes of CPU
def test_three_workers_with_every_switch_that_matters(in_memory: Make) -> None:
    assert meet(in_memory, (5, 9), (5, 8), (5, 6), before=4, switches=5) > 1000


@pytest.mark.parametrize("known", [((1, 2), (1, 3)), ((2, 4), (2, 3))], ids=["a new table", "a table"])
def test_two_workers_that_commit_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: tuple[tuple[int, int], ...]
) -> None:
    orders = itertools.count()
    acting = threading.local()

    def run(actors: Actors) -> None:
        table = Table(None, tmp_path / str(next(orders)), mode="changelog", merge=MergeOptions(engine="auto"))
        place = {"topic": "cdc", "partition": 0, "index": 0, "op": "insert"}
        for number in range(1, max(last for _, last in known) + 1):
            table.put(ROWS, {"id": number, "offset": number, **place})

        def bring(first: int, last: int) -> bool:
            segments = [each for each in table.log.segments if first <= each.number <= last]
            what = Bringing(table.ref, segments, table.shape, table.note(first, last), first - 1)
            return WithoutSpark(table.options, LocalFiles()).apply(what) is not None

        def work(first: int, last: int) -> None:
            acting.step = actors.step
            while first <= last:
                try:
                    assert bring(first, last)
                    first = last + 1
                except MergeConflict:
                    held = held_in_files(LocalFiles(), table.path, table.ref.app_id)
                    assert held is not None
                    first = held.last + 1

        if known[0][0] > 1:
            assert bring(1, 1)
        for part in known:
            actors.start(partial(work, *part))
        actors.run()
        assert [row for (row,) in table.rows("id")] == list(range(1, max(last for _, last in known) + 1))

    def stepping(do: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*given: Any, **named: Any) -> Any:
            if hasattr(acting, "step"):
                acting.step()
            return do(*given, **named)

        return stepped

    # Before the look at the table, before its newest segment is read, before the commit's files and itself.
    for name in ("_table", "_goes_on", "_commit"):
        monkeypatch.setattr(WithoutSpark, name, stepping(getattr(WithoutSpark, name)))
    monkeypatch.setattr(NextVersion, "_commit", stepping(NextVersion._commit))
    assert every_order(run, switches=4) >= 20
