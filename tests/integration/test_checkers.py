"""The judges themselves: each finds what it is there to find."""

from __future__ import annotations

from typing import Any

import pytest
from integration.checkers import Guarantee, NeverTwoAtOnce, NothingLost, NothingTwice, TableOrder

Event = dict[str, Any]


def event(kind: str, table: str = "shop.t0", seq: int = 0, worker: str = "a:1", batch: int = 0) -> Event:
    names = {"event": kind, "worker": worker, "handler": "recording", "table": table, "batch": batch}
    return {**names, "seq": seq} if kind == "row" else names


def rows(*seqs: int) -> list[Event]:
    return [event("row", seq=seq) for seq in seqs]


@pytest.mark.parametrize(
    ("guarantee", "events", "word"),
    [
        (NothingLost({"shop.t0": [0, 1, 2]}), rows(0, 2), "never came: [1]"),
        (NothingLost({"shop.t0": [0]}), [], "never came"),
        (NothingLost({"shop.t0": [0]}, handlers=["recording", "mirror"]), rows(0), "mirror: 1 rows"),
        (NothingLost({"shop.t0": [0]}), rows(0, 1), "never sent"),
        (TableOrder(), rows(0, 2, 1), "row 2 of shop.t0 came after row 0"),
        (TableOrder(), rows(1), "came after row -1"),
        (TableOrder(), rows(0, 1, 2, 0, 2), "row 2 of shop.t0 came after row 0"),
        (NothingTwice(), rows(0, 1, 0), "row 0 of shop.t0 came again"),
        (NeverTwoAtOnce(), [event("start"), event("start", batch=1)], "while ('a:1', 0) was inside"),
        (NeverTwoAtOnce(), [event("start"), event("start", worker="b:2")], "while ('a:1', 0) was inside"),
        (
            NeverTwoAtOnce(),
            [event("start"), event("gone"), event("start", worker="b:2"), event("row")],
            "('a:1', 0) is inside shop.t0",
        ),
    ],
)
def test_a_broken_guarantee_is_found(guarantee: Guarantee, events: list[Event], word: str) -> None:
    assert any(word in fault for fault in guarantee.broken(events))


@pytest.mark.parametrize(
    ("guarantee", "events"),
    [
        (NothingLost({"shop.t0": [0, 1]}), rows(0, 1, 0, 1)),
        (TableOrder(), rows(0, 1, 2, 1, 2, 3)),
        (TableOrder(), [event("row", "shop.t0", 0), event("row", "shop.t1", 0), event("row", "shop.t0", 1)]),
        (NothingTwice(), [event("row", "shop.t0", 0), event("row", "shop.t1", 0)]),
        (NeverTwoAtOnce(), [event("start"), event("row"), event("end"), event("start", worker="b:2")]),
        (NeverTwoAtOnce(), [event("start"), event("gone"), event("start", worker="b:2")]),
        (
            NeverTwoAtOnce(),
            [event("start"), event("start", "shop.t1"), event("end")],
        ),
    ],
)
def test_a_guarantee_that_held_is_not_called_broken(guarantee: Guarantee, events: list[Event]) -> None:
    assert guarantee.broken(events) == []
