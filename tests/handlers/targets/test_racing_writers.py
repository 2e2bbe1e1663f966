"""Targets with versions, and workers that meet a table at once, in any order of their calls: by a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import make
from target_kinds import Target
from test_targets import process
from turns import Turns

from handlers import Batch, Handler
from handlers.clickhouse.client import ClickHouseClient
from handlers.elasticsearch.client import SearchClient
from handlers.progress import FormerTopic
from handlers.testing import make_batch

TYPES = {"id": "int", "n": "int"}
WORKERS = 3
LIVES: dict[tuple[str, int], list[tuple[str, int]]] = {
    ("x", 0): [("X", 5), ("X", 6), ("X", 7)],
    ("x", 1): [("X", 900)],
    ("y", 0): [("Y", 2), ("Y", 3)],
    ("z", 0): [("A", 50), ("B", 0)],
}
"""Topic and partition -> topic's id and offset of its changes, each of the same row: z is made anew."""


@pytest.fixture(params=["clickhouse", "opensearch"])
def versioned(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return make(request.param, request, tmp_path)


def change(partition: tuple[str, int], number: int) -> Batch:
    """The change of this number of a partition's row."""
    topic, of = partition
    topic_id, offset = LIVES[partition][number]
    row = {"id": list(LIVES).index(partition), "n": number}
    return make_batch(
        "shop.orders",
        [row],
        key="id",
        types=TYPES,
        topic=topic,
        partition=of,
        offset=offset,
        topic_id=topic_id,
    )


def works(handlers: list[Handler], random: Random) -> list[Callable[[], None]]:
    """Each partition's changes in order, by any worker; beside them one that is late with a first change."""

    def go_on(partition: tuple[str, int]) -> None:
        for number in range(len(LIVES[partition])):
            random.choice(handlers).handle(change(partition, number))

    def be_late(partition: tuple[str, int]) -> None:
        try:
            handlers[-1].handle(change(partition, 0))
        except FormerTopic:
            assert partition == ("z", 0)

    return [*(partial(go_on, one) for one in LIVES), *(partial(be_late, one) for one in LIVES)]


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(one, marks=pytest.mark.soak) for one in range(2, 40))]
)
def test_the_last_change_of_each_row_is_what_a_table_shows_whoever_met_it_when(
    versioned: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    turns = Turns(random)
    for client, name in ((ClickHouseClient, "_send"), (SearchClient, "request")):
        call = getattr(client, name)

        def in_turn(*args: Any, _call: Any = call, **more: Any) -> Any:
            turns.step()
            return _call(*args, **more)

        monkeypatch.setattr(client, name, in_turn)
    with ExitStack() as stack:
        handlers = [stack.enter_context(process(versioned, tmp_path)) for _ in range(WORKERS)]
        errors = turns.run(works(handlers, random))
    assert errors == []
    last = {str(row): str(len(life) - 1) for row, life in enumerate(LIVES.values())}
    assert {key: row["n"] for key, row in versioned.rows("shop.orders").items()} == last
