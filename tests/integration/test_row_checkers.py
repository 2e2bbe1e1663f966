"""The judges of row order: each finds what it is there to find."""

from __future__ import annotations

from typing import Any

import pytest
from integration.checkers import Event, Guarantee
from integration.row_source import Barriers, NeverTwoOfAShardAtOnce, RowOrder, Sent

TABLE = "shop.t0"
LOG = {TABLE: [Sent(0, (1,)), Sent(1, (2,)), Sent(2, (1, 3)), Sent(3, ()), Sent(4, (1,)), Sent(5, (2,))]}
"""Rows 1 and 2; row 1 becomes row 3; a statement; rows 1 and 2."""


def row(seq: int, one: int | None) -> Event:
    return {
        "event": "row",
        "handler": "h",
        "table": TABLE,
        "id": one,
        "seq": seq,
        "worker": "a:1",
        "batch": 0,
    }


def batch(kind: str, number: int, shard: int | None, worker: str = "a:1") -> Event:
    names: dict[str, Any] = {"event": kind, "handler": "h", "table": TABLE, "worker": worker, "batch": number}
    return names if shard is None else names | {"shard": shard}


RIGHT = [row(1, 2), row(0, 1), row(2, 1), row(2, 3), row(3, None), row(5, 2), row(4, 1)]
GONE = {"event": "gone", "worker": "a:1"}


@pytest.mark.parametrize(
    ("guarantee", "events", "word"),
    [
        (RowOrder(LOG), [row(0, 1), row(4, 1)], "change 2 (seq 4) came after change 0"),
        (RowOrder(LOG), [row(2, 1)], "came after change -1"),
        (RowOrder(LOG), [*RIGHT, row(0, 1), row(4, 1)], "came after change 0"),
        (Barriers(LOG), [row(0, 1), row(2, 1), row(1, 2)], "seq 2 came before all before it"),
        (Barriers(LOG), [*RIGHT[:4], row(4, 1), row(3, None)], "what follows shop.t0 seq 3"),
        (Barriers(LOG), [row(1, 2), row(0, 1), row(3, None), row(2, 1)], "seq 3 came before all"),
        (NeverTwoOfAShardAtOnce(), [batch("start", 0, 5), batch("start", 1, 5)], "shard 5"),
        (NeverTwoOfAShardAtOnce(), [batch("start", 0, 5), batch("start", 1, None)], "shard None"),
        (NeverTwoOfAShardAtOnce(), [batch("start", 0, None), batch("start", 1, 5, "b:2")], "shard 5"),
    ],
)
def test_a_broken_guarantee_is_found(guarantee: Guarantee, events: list[Event], word: str) -> None:
    assert any(word in fault for fault in guarantee.broken(events))


@pytest.mark.parametrize(
    ("guarantee", "events"),
    [
        (RowOrder(LOG), RIGHT),
        (RowOrder(LOG), [*RIGHT, row(2, 1), row(2, 3), row(4, 1)]),
        (Barriers(LOG), RIGHT),
        (Barriers(LOG), [*RIGHT[:4], row(1, 2), *RIGHT[4:], row(0, 1)]),
        (NeverTwoOfAShardAtOnce(), [batch("start", 0, 5), batch("start", 1, 6), batch("end", 0, 5)]),
        (NeverTwoOfAShardAtOnce(), [batch("start", 0, 5), GONE, batch("start", 0, None, "b:2")]),
    ],
)
def test_a_guarantee_that_held_is_not_called_broken(guarantee: Guarantee, events: list[Event]) -> None:
    assert guarantee.broken(events) == []
