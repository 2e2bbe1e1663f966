"""A batch ends once: what it held is released by the first verb, and the second is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from building import Clock, unit
from lane_building import Source, lanes_of, offsets, taken
from row_building import row_unit

from worker.lanes.lanes import Lanes
from worker.lanes.snapshot import snapshot
from worker.units.sharding import Spread
from worker.units.work import Work

End = Callable[[Lanes, Work], object]

ENDS: dict[str, End] = {
    "finish": lambda lanes, work: lanes.finish(0, work),
    "take": lambda lanes, work: lanes.take(0, work),
    "give_back": lambda lanes, work: lanes.give_back(0, work, delay=60.0, error="it failed"),
    "halt": lambda lanes, work: lanes.halt(0, work, "it cannot be"),
}


def held(lanes: Lanes) -> list[tuple[int, int]]:
    return [(lane.records, lane.bytes) for lane in lanes.lanes]


@pytest.mark.parametrize("second", [*ENDS, "shorten"])
@pytest.mark.parametrize("first", ["finish", "give_back", "halt"])
def test_what_ends_a_batch_again_is_refused_and_changes_nothing(first: str, second: str) -> None:
    lanes = lanes_of(Clock())
    source = Source(lanes)
    table, other = unit("a"), unit("b")
    source.offer((table, 3), (other, 2))
    work = taken(lanes, 0)
    ENDS[first](lanes, work)
    before, state = held(lanes), table.state
    again = ENDS.get(second, lambda lanes, work: lanes.shorten(0, work, 1))
    with pytest.raises(RuntimeError, match=r"shop\.a"):
        again(lanes, work)
    assert (held(lanes), table.state) == (before, state)
    assert taken(lanes, 0).unit is other, "who holds the lock lets it go"


def test_a_lane_ends_no_batch_of_another() -> None:
    lanes = lanes_of(Clock())
    Source(lanes).offer((unit("a", lane=0), 3), (unit("b", lane=1), 2))
    work, other = taken(lanes, 0), taken(lanes, 1)
    with pytest.raises(RuntimeError, match="lane 1"):
        lanes.finish(1, work)
    assert lanes.seen.running() == [work, other]
    assert [records for records, _ in held(lanes)] == [3, 2]


def test_a_batch_that_was_cut_ends_as_its_first_part_alone() -> None:
    lanes = lanes_of(Clock())
    table = unit("a")
    Source(lanes).offer((table, 5))
    whole = taken(lanes, 0)
    first = lanes.shorten(0, whole, 2)
    with pytest.raises(RuntimeError):
        lanes.finish(0, whole)
    lanes.finish(0, first)
    rest = taken(lanes, 0)
    assert offsets(rest) == [2, 3, 4]
    lanes.finish(0, rest)
    assert set(held(lanes)) == {(0, 0)}


def test_a_batch_that_was_given_back_is_not_spread() -> None:
    lanes = lanes_of(Clock())
    table = row_unit()
    Source(lanes).offer((table, 3), value=b"{}")
    work = taken(lanes, 0)
    lanes.give_back(0, work, delay=60.0)
    before = held(lanes)
    with pytest.raises(RuntimeError):
        lanes.spread(0, work, Spread(records=3))
    assert held(lanes) == before


def test_an_offer_that_is_refused_leaves_nothing_behind() -> None:
    clock = Clock()
    lanes = lanes_of(clock, max_records=4)
    source = Source(lanes)
    full, empty = unit("a", lane=0), unit("b", lane=1)
    source.offer((full, 3))
    before, used = held(lanes), full.used
    clock.now += 1.0
    assert not source.offer((empty, 2), (full, 2))
    assert held(lanes) == before
    assert (empty.at_rest, empty.records, empty.bytes, empty.used) == (True, 0, 0, 0.0)
    assert (full.records, len(full.chunks), full.used) == (3, 1, used)


def test_each_lane_counts_what_was_offered_and_how_batches_ended() -> None:
    clock = Clock()
    lanes = lanes_of(clock, max_records=4)
    source = Source(lanes)
    a, b = unit("a", lane=0), unit("b", lane=1)
    assert source.offer((a, 3), (b, 1))
    assert not source.offer((a, 2))
    assert not source.offer((a, 2), (b, 1))
    failed, done = taken(lanes, 0), taken(lanes, 1)
    lanes.give_back(0, failed, delay=0.0)
    assert lanes.take(1, done) is failed
    lanes.halt(1, failed, "it cannot be")
    with pytest.raises(RuntimeError):
        lanes.finish(1, failed)
    seen = snapshot(lanes.seen, [a, b], 10).lanes
    assert [lane.offers for lane in seen] == [{"queued": 1, "refused": 2}, {"queued": 1, "refused": 1}]
    assert [{how: count for how, count in lane.batches.items() if count} for lane in seen] == [
        {"given_back": 1},
        {"finished": 1, "halted": 1},
    ]
