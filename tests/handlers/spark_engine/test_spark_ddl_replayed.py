"""A statement that failed half way, and comes again as a dead letter."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from msgspec.structs import replace
from spark_lake import Lake, change

from handlers import Batch
from handlers.spark.engine.table.failures import SparkFailure

SQL = "ALTER TABLE orders DROP price, RENAME COLUMN price_new TO price, ADD z int NOT NULL DEFAULT 7"
STATEMENT = change(1, None, None, op="ddl", sql=SQL)


def replay(lake: Lake, number: int) -> None:
    """As the letter `number`."""
    place = f"cdc.dead@{number}"
    letter = replace(STATEMENT, topic=place, partition=0, offset=number)
    positions = {(place, 0): (number, number)}
    lake.handler.handle(
        Batch(
            "shop.orders",
            [letter],
            database="shop",
            name="orders",
            positions=positions,
            records=1,
            replay_of=("cdc", 0, 1),
        )
    )


@pytest.mark.parametrize(
    "noted", [pytest.param(True, id="soon"), pytest.param(False, id="long after", marks=pytest.mark.soak)]
)
def test_a_replayed_statement_goes_on_where_it_failed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    """Long after, so many commits lie over its own that their notes are not looked at."""

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the store is away")

    types = {"id": "int", "price": "int", "price_new": "int"}
    lake.take(change(0, {"id": 1, "price": 100, "price_new": 200}, types))
    with monkeypatch.context() as while_away:
        while_away.setattr(sys.modules["handlers.spark.ddl.follow"], "add_columns", broken)
        with pytest.raises(SparkFailure, match="the store is away"):
            lake.take(STATEMENT)
    if not noted:
        monkeypatch.setattr("handlers.spark.ddl.target.notes_in_files", lambda *_: [])
    replay(lake, 0)
    replay(lake, 1)
    assert lake.rows("id, price, z") == [(1, 200, 7)]
