"""Whatever the order in which workers look at a table and commit to it: each segment is in it once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from delta_model import REF, Actors, DeltaModel, Worker, every_order, in_memory

from handlers.spark.delta.commits.commit_notes import CommitNote

__all__ = ["in_memory"]

Make = Callable[[Actors], DeltaModel]


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
